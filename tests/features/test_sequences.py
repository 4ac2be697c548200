from __future__ import annotations

import json
import math
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunefleet.features.sequences import (
    ARGUMENTS,
    KINDS,
    LONGEST,
    OTHER_KINDS,
    SCHEMA,
    WIDTH,
    Sequences,
)

from .programs import JSON

NO_PROGRAM = np.zeros(0, np.int64)


def row(text: str) -> np.ndarray:
    return Sequences.of([text], np.zeros(1, int), np.ones(1, int)).distinct[0]


def arguments(text: str) -> list[float]:
    return row(text)[WIDTH - ARGUMENTS :].tolist()


def test_the_schema_is_what_it_was() -> None:
    """Whoever changes the layout changes the version: saved models name it."""
    expected = np.zeros(28)
    expected[4] = 1.0
    expected[18:26] = np.log2(1.0 + np.array([2, 1, 1024, 1, 2, 8, 16, 1]))
    assert SCHEMA == "sequences/1"
    np.testing.assert_allclose(row('["SP",2,1,1024,[1,2,8,16],1]'), expected, rtol=1e-6)


def test_every_kind_has_a_place_of_its_own() -> None:
    places = [int(row(f'["{kind}",0]').argmax()) for kind in KINDS]
    assert places == list(range(len(KINDS)))


@pytest.mark.parametrize("kind", ["tile_f", "SamplePerfectTile", "block_size_x", "", "\u00e9"])
def test_other_kinds_have_a_hashed_place(kind: str) -> None:
    places = np.flatnonzero(row(json.dumps([kind, 1]))[: len(KINDS) + OTHER_KINDS])
    assert len(places) == 1
    assert places[0] >= len(KINDS)


def test_a_pragma_is_its_name_and_its_number() -> None:
    found = arguments('["PR",1,0,"auto_unroll_max_step$512"]')
    other = arguments('["PR",1,0,"auto_unroll_max_step$16"]')
    assert found[3] == pytest.approx(math.log2(513))
    assert found[2] == other[2] != 0.0


@pytest.mark.parametrize(
    ("value", "expected"),
    [("-7", -3.0), ("0", 0.0), ("true", 1.0), ("null", 0.0), ("1e999", 62.0), ("9" * 400, 62.0),
     ("NaN", 0.0), ("-Infinity", -62.0), ("[[3]]", 2.0)],
)  # fmt: skip
def test_numbers_are_compressed_and_bounded(value: str, expected: float) -> None:
    assert arguments(f'["CI",{value}]')[0] == pytest.approx(expected)


@given(st.lists(JSON, max_size=20))
def test_any_array_becomes_a_finite_row(value: list[object]) -> None:
    found = row(json.dumps(value))
    assert found.shape == (WIDTH,)
    assert np.isfinite(found).all()


@pytest.mark.parametrize("text", ["", "{}", "3", "[", '"SP"', "[" * 100_000])
def test_what_is_no_array_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a primitive is not"):
        row(text)


def test_lengths_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="lengths sum to 1, not 2"):
        Sequences.of(["[]"], np.zeros(2, int), np.ones(1, int))


def three() -> Sequences:
    """Programs of 2, 0 and 3 primitives."""
    return Sequences.of(['["CI",0]', '["CI",1]'], np.array([0, 1, 1, 1, 0]), np.array([2, 0, 3]))


def test_short_programs_are_padded_and_long_ones_cropped() -> None:
    found, (first, second) = three().padded(2), three().distinct
    zero = np.zeros(WIDTH)
    np.testing.assert_array_equal(found, [[first, second], [zero, zero], [second, second]])


def test_flat_is_padded_in_one_row() -> None:
    flat = three().flat(2)
    assert [program.shape for program in flat] == [(1, 2 * WIDTH)] * 3
    np.testing.assert_array_equal(three().padded(2).reshape(3, -1), np.concatenate(flat))


def test_ragged_programs_have_their_own_length() -> None:
    first, second = three().distinct
    found = three().ragged(2)
    np.testing.assert_array_equal(found[0], [first, second])
    np.testing.assert_array_equal(found[1], np.zeros((1, WIDTH)))
    np.testing.assert_array_equal(found[2], [second, second])


def test_projections_keep_distances() -> None:
    generator = np.random.default_rng(0)
    texts = [f'["SP",{i},{2**i},[{3**i}],1]' for i in range(12)]
    found = Sequences.of(texts, generator.integers(0, 12, 800), np.full(40, 20))
    wide, narrow = found.padded().reshape(40, -1), found.projected(64)
    before = np.linalg.norm(wide[:20] - wide[20:], axis=1)
    after = np.linalg.norm(narrow[:20] - narrow[20:], axis=1)
    assert narrow.shape == (40, 64)
    np.testing.assert_allclose(after / before, 1.0, atol=0.4)


def test_no_programs_give_no_features() -> None:
    empty = Sequences.of([], NO_PROGRAM, NO_PROGRAM)
    assert empty.padded().shape == (0, LONGEST, WIDTH)
    assert (empty.flat(), empty.ragged()) == ([], [])


def test_tens_of_thousands_of_programs_a_second() -> None:
    generator = np.random.default_rng(0)
    texts = [f'["SP",{i},0,1024,[1,2,{i}],1]' for i in range(2000)]
    lengths = np.full(20_000, 35)
    started = time.process_time()
    found = Sequences.of(texts, generator.integers(0, 2000, lengths.sum()), lengths).padded()
    assert len(found) / (time.process_time() - started) > 20_000
