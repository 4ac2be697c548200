"""Post-training quantisation of networks before their import.

Importing this package imports neither TVM nor ONNX Runtime.
"""

from tunefleet.compiler.quantize.files import drafted, quantized_file

__all__ = ["drafted", "quantized_file"]
