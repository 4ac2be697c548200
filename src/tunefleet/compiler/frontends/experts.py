"""Products of mixtures of experts, for all frontends."""

from __future__ import annotations

from typing import Any

from tunefleet.compiler.toolchain import load_tvm

te = load_tvm().te


def rows_by_expert(rows: Any, weights: Any, expert: Any) -> Any:
    """Rows (n, k) times weights (experts, k, m), each by those of `expert` (n,): (n, m)."""
    inner = te.reduce_axis((0, rows.shape[1]), name="k")
    return te.compute(
        (rows.shape[0], weights.shape[2]),
        lambda i, j: te.sum(rows[i, inner] * weights[expert[i], inner, j], axis=inner),
        name="grouped_matmul",
    )
