from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunefleet.features import pack, unpack


@given(st.integers(1, 9), st.integers(1, 200), st.integers(0, 2**31))
def test_features_survive_packing(rows: int, columns: int, seed: int) -> None:
    values = np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float32)
    np.testing.assert_array_equal(unpack(pack(values)), values)


def test_sparse_features_are_small() -> None:
    assert len(pack(np.zeros((5, 172), dtype=np.float32))) < 100


def test_damaged_bytes_are_refused() -> None:
    with pytest.raises(Exception, match=r"unpack|Error|header|incomplete"):
        unpack(b"\x01")
