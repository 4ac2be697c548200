"""Passes of ours at the end of TVM's lowering of code for processors."""

from __future__ import annotations

from typing import Any


def finish_with(own: Any) -> None:
    """From here on, a pass is the last but TVM's own that remove its built-in functions, in all
    code that this process makes for a processor; kernels of GPUs are without it. Call once per
    pass and process, after TVM was imported."""
    import tvm
    from tvm.tirx import compilation_pipeline

    made_before = compilation_pipeline.PIPELINE_MAP["s_tir"]

    def pipeline() -> tuple[Any, Any, Any]:
        lower, finalize_host, finalize_device = made_before()

        def finalize() -> Any:
            return tvm.ir.transform.Sequential([own, finalize_host()])

        return lower, finalize, finalize_device

    compilation_pipeline.register_tir_pipeline("s_tir", pipeline)
