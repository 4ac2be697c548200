"""Per-store features: one row per store statement of the lowered program.

Schema `per-store/1`: the 164 numbers of Ansor (57 of the computation, 5 buffers x 18, 10 of the
arithmetic-intensity curve, 4 of the allocation, 3 of the outer loops) and the workload embedding
of MetaSchedule, as `PerStoreFeature(extract_workload=True)` gives them.
Source: Zheng et al., Ansor, OSDI 2020, appendix.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

SCHEMA = "per-store/1"
#: Columns of a row: of the store, then of the workload.
COLUMNS = 164 + 8


@lru_cache(maxsize=1)
def _extractor() -> Any:
    from tvm.s_tir.meta_schedule.feature_extractor import PerStoreFeature

    return PerStoreFeature(extract_workload=True)


def extract(context: Any, candidates: Sequence[Any]) -> list[NDArray[np.float32]]:
    """Features of MetaSchedule's measure candidates in a TuneContext, (stores, columns) each."""
    features = _extractor().extract_from(context, list(candidates))
    return [f.numpy().astype(np.float32) for f in features]
