from __future__ import annotations

import pytest

from tunefleet.core.precision import BF16, FLOAT16, FLOAT32, FLOAT64, INT8, precision_of


@pytest.mark.parametrize(
    ("expected", "types"),
    [
        (FLOAT32, ["float32", "float32", "float32"]),
        (FLOAT64, ["float64", "float64"]),
        (INT8, ["uint8", "int8", "int32", "float32", "float32"]),  # sums and scales beside
        (INT8, ["uint8"]),  # a pooling
        (BF16, ["uint16", "uint16", "float32"]),  # its bits, and a bias
        (BF16, ["uint32", "bfloat16", "bfloat16"]),
        (FLOAT16, ["float16", "float16", "float32"]),
        (FLOAT32, ["float32", "int8"]),  # weights alone in 8 bits
        (FLOAT32, ["uint8", "float32"]),  # integers that become floats
        (FLOAT32, ["float32", "int64"]),  # rows by their numbers
        (FLOAT32, []),  # a record that tells no types
    ],
)
def test_what_a_program_reads_tells_in_what_it_computes(expected: str, types: list[str]) -> None:
    assert expected == precision_of(types)
