"""Adds passes to the end of TVM's CPU lowering pipeline."""

from __future__ import annotations

from typing import Any


def finish_with(own: Any) -> None:
    """Run the pass `own` on all CPU code that this process lowers, before TVM's last passes, which
    remove its built-in functions. GPU kernels are not affected. Call once per pass and process,
    after TVM was imported."""
    import tvm
    from tvm.tirx import compilation_pipeline

    made_before = compilation_pipeline.PIPELINE_MAP["s_tir"]

    def pipeline() -> tuple[Any, Any, Any]:
        lower, finalize_host, finalize_device = made_before()

        def finalize() -> Any:
            return tvm.ir.transform.Sequential([own, finalize_host()])

        return lower, finalize, finalize_device

    compilation_pipeline.register_tir_pipeline("s_tir", pipeline)
