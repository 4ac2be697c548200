"""Networks of quantised tensors as programs on integers.

What a frontend imports says `quantize`, `dequantize` and, between them, operators on floats. Here
products of quantised tensors become products of 8-bit integers with sums in int32, zero points
become a constant that is added to the sums, and what follows becomes one elementwise step that is
fused after them, with the rounding of ONNX Runtime (`rounding.py`).
"""

from tunefleet.compiler.graph.quantized.programs import with_programs
from tunefleet.compiler.graph.quantized.rewrite import integer_programs, prefers_unsigned

__all__ = ["integer_programs", "prefers_unsigned", "with_programs"]
