"""Networks in floats made into networks of quantised tensors, before they are imported.

Importing this package imports neither TVM nor ONNX Runtime.
"""

from tunefleet.compiler.quantize.files import quantized_file

__all__ = ["quantized_file"]
