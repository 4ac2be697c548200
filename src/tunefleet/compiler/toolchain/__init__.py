"""TVM as this project needs it: loaded quickly and quietly, with this machine as its target."""

from tunefleet.compiler.toolchain.loading import MEASURE_VERSION, load_tvm, toolchain_identity

__all__ = ["MEASURE_VERSION", "load_tvm", "toolchain_identity"]
