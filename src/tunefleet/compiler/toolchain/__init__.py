"""Loading TVM, targets, linkers and CUDA's compiler."""

from tunefleet.compiler.toolchain.loading import MEASURE_VERSION, load_tvm, toolchain_identity

__all__ = ["MEASURE_VERSION", "load_tvm", "toolchain_identity"]
