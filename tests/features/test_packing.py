from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunefleet.features import is_of_schema, pack, schema_of, unpack
from tunefleet.features.tilings import WIDTH


@given(st.integers(1, 9), st.integers(1, 200), st.integers(0, 2**31))
def test_features_survive_packing(rows: int, columns: int, seed: int) -> None:
    values = np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float32)
    np.testing.assert_array_equal(unpack(pack(values)), values)


def test_sparse_features_are_small() -> None:
    assert len(pack(np.zeros((5, 172), dtype=np.float32))) < 100


def test_damaged_bytes_are_refused() -> None:
    with pytest.raises(Exception, match=r"unpack|Error|header|incomplete"):
        unpack(b"\x01")


def test_features_say_which_schema_they_are_of() -> None:
    packed = pack(np.ones((2, 3), dtype=np.float32), "unified/1")
    assert schema_of(packed) == "unified/1"
    assert (is_of_schema(packed), is_of_schema(packed, "unified/1")) == (False, True)
    # The width is that of another schema: the name counts.
    assert not is_of_schema(pack(np.ones((2, WIDTH), dtype=np.float32), "other/1"))


@pytest.mark.parametrize(
    ("columns", "schema"), [(WIDTH, "tilings/1"), (172, "per-store/1"), (9, "")]
)
def test_features_of_earlier_versions_are_read(columns: int, schema: str) -> None:
    values = np.arange(2 * columns, dtype="<f4").reshape(2, columns)
    written = struct.pack("<HH", 2, columns) + zlib.compress(values.tobytes(), 1)
    np.testing.assert_array_equal(unpack(written), values)
    assert schema_of(written) == schema


@pytest.mark.parametrize("length", range(20))
def test_features_cut_short_are_of_no_schema_or_are_refused(length: int) -> None:
    cut = pack(np.ones((2, 3), dtype=np.float32))[:length]
    assert schema_of(cut) in ("", "tilings/1")
    with pytest.raises((ValueError, struct.error, zlib.error)):
        unpack(cut)
