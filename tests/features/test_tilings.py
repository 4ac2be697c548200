from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tunefleet.dataset import codecs
from tunefleet.features.tilings import LONGEST, SCHEMA, WIDTH, Encoder, Tilings
from tunefleet.features.words import KINDS

from .programs import (
    AUTO_SCHEDULER,
    AUTOTVM,
    KERNEL_TUNER,
    METASCHEDULE,
    PRIMITIVES,
    TUNERS,
    Program,
    tilings,
)

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
#: One of each format.
LOGS = [
    "tvm_ci_logs/10f63d0d__conv2d.json.gz",
    "tlcbench_ansor/tuning_logs__autoscheduler_cuda_mobilenet_v2.log.gz",
    "metaschedule_web_llm/a__database_tuning_record.json.gz",
    "tophub/tophub__cuda_v0.01.log.gz",
    "benchmark_hub/cachefiles/convolution_milo/A100_T4.json.gz",
]
PROGRAM = 1 + len(KINDS)
SUMMARY = PROGRAM + 32


def one(program: Program, context: np.ndarray | None = None) -> np.ndarray:
    return tilings([program], None if context is None else context[None]).groups[0][0]


def row(program: Program, kind: str) -> np.ndarray:
    """The numbers of its first primitive of that kind."""
    rows = one(program)
    return rows[rows[:, 1 + KINDS.index(kind)] == 1.0][0, PROGRAM:]


class TestLayout:
    """Whoever changes the layout changes the version: saved models name it."""

    def test_the_schema(self) -> None:
        assert (SCHEMA, WIDTH) == ("tilings/1", 83)

    def test_a_split(self) -> None:
        expected = np.zeros(64)
        expected[:4] = np.log2([8, 2, 4, 1])
        expected[5:7] = 6, 4
        expected[7] = 1
        expected[12] = np.log2(65)
        np.testing.assert_allclose(row([["SP", 3, 4, 64, [4, 2, 8], 1]], "spatial"), expected)

    def test_a_knob(self) -> None:
        assert row(KERNEL_TUNER, "knob")[1] == np.float32(np.log2(17))

    def test_a_split_of_autotvm(self) -> None:
        np.testing.assert_allclose(row(AUTOTVM, "spatial")[:7], [4, 3, 1, 0, 0, 8, 4])

    def test_another_choice(self) -> None:
        assert row(METASCHEDULE, "unroll")[11] == np.float32(np.log2(65))
        assert row(METASCHEDULE, "location")[11] == 5.0

    def test_the_kinds(self) -> None:
        places = one(METASCHEDULE)[:, :PROGRAM].argmax(axis=1)
        kinds = ["spatial", "spatial", "reduction", "cache_write", "compute_at", "unroll",
                 "location"]  # fmt: skip
        assert [0, *(1 + KINDS.index(kind) for kind in kinds)] == places.tolist()

    def test_the_context(self) -> None:
        context = np.arange(32, dtype=np.float32)
        np.testing.assert_array_equal(context, one(METASCHEDULE, context)[0, PROGRAM:SUMMARY])

    def test_the_summary(self) -> None:
        """Of tiles 7 1 4 2 and 1 2 4 8 over space, 16 4 over the reduction."""
        expected = np.zeros(32)
        expected[:5] = [4, 4, 1, np.log2(7), 0]  # products by level, inside first
        expected[5:8] = [2, 4, 0]
        expected[8:13] = [3, 2, 1, 0, 0]  # the last axis
        expected[13:16] = [2, 4, 0]
        expected[16:19] = [8, 9, 9 + np.log2(7)]  # products of inner levels
        expected[19] = 10  # register tile with its steps of reduction
        expected[20] = np.log2(65)  # unrolling
        expected[21] = 5  # location
        expected[25:27] = [1, 2]  # the last axis but one
        expected[27:29] = [9 + np.log2(7), 6]  # all of space, all of the reduction
        np.testing.assert_allclose(one(METASCHEDULE)[0, SUMMARY:], expected, rtol=1e-6)

    def test_the_summary_tells_of_what_has_no_row(self) -> None:
        program = [["AN", 4, 1, 2], ["FU", 8, [0, 1, 2, 3]], ["CHR", 2, "shared", [3]]]
        assert one(program)[0, SUMMARY + 29 :].tolist() == [1.0, 4.0, 1.0]
        assert len(one(program)) == 2


class TestPrograms:
    @pytest.mark.parametrize("program", TUNERS)
    def test_programs_that_differ_in_choices_are_one_group(self, program: Program) -> None:
        other: list[list[Any]] = copy.deepcopy([list(primitive) for primitive in program])
        for primitive in other:
            if primitive[0] == "SP":
                primitive[4] = primitive[4][::-1]
            if primitive[0] == "SamplePerfectTile":
                primitive[4] = primitive[4][::-1]
            if isinstance(primitive[-1], int) and primitive[0].islower():
                primitive[-1] += 1
        found = tilings([program, other, program])
        assert [group.shape[0] for group in found.groups] == [3]
        np.testing.assert_array_equal(found.groups[0][0], found.groups[0][2])
        assert not np.array_equal(found.groups[0][0], found.groups[0][1])

    def test_members_number_the_programs_of_groups(self) -> None:
        found = tilings([METASCHEDULE, AUTOTVM, METASCHEDULE])
        assert [members.tolist() for members in found.members] == [[0, 2], [1]]
        assert len(found) == 3

    @settings(max_examples=40, deadline=None)
    @given(st.lists(st.lists(PRIMITIVES, max_size=6) | st.sampled_from(TUNERS), max_size=8))
    @example([[["Split", [], [], []]]])
    def test_a_program_has_the_rows_it_has_alone(self, programs: list[Program]) -> None:
        contexts = np.arange(32 * len(programs), dtype=np.float32).reshape(-1, 32)
        found = tilings(programs, contexts).ragged()
        assert len(found) == len(programs)
        for program, context, rows in zip(programs, contexts, found, strict=True):
            np.testing.assert_allclose(one(program, context), rows, rtol=1e-6)

    @settings(deadline=None)
    @given(st.lists(PRIMITIVES, max_size=12))
    def test_any_program_is_finite(self, program: list[list[object]]) -> None:
        found = one(program)
        assert found.shape[1] == WIDTH
        assert np.isfinite(found).all()

    def test_nothing_is_read_beyond_the_decisions(self) -> None:
        end = next(i for i, primitive in enumerate(METASCHEDULE) if primitive[0] == "EnterPostproc")
        found = tilings([METASCHEDULE, METASCHEDULE[:end]])
        assert len(found.groups) == 1
        np.testing.assert_array_equal(*found.groups[0])

    def test_a_program_without_primitives_is_its_context(self) -> None:
        context = np.ones(32, np.float32)
        found = one([], context)
        assert found.shape == (1, WIDTH)
        assert found[0, PROGRAM:SUMMARY].tolist() == context.tolist()

    def test_long_programs_are_cropped(self) -> None:
        assert len(one([["CI", 0]] * (LONGEST + 5))) == 1 + LONGEST

    def test_no_programs(self) -> None:
        empty = tilings([])
        assert (len(empty), empty.ragged(), empty.flat()) == (0, [], [])

    def test_what_is_no_array_is_refused(self) -> None:
        with pytest.raises(ValueError, match="a primitive is not"):
            Tilings.of(["{}"], np.zeros(1, int), np.ones(1, int), np.zeros((1, 32), np.float32))


class TestShapes:
    def test_ragged_programs_have_their_own_length(self) -> None:
        found = tilings([METASCHEDULE, AUTO_SCHEDULER, []]).ragged()
        assert [program.shape for program in found] == [(8, WIDTH), (7, WIDTH), (1, WIDTH)]

    def test_flat_is_one_row_of_one_width(self) -> None:
        found = tilings([METASCHEDULE, AUTO_SCHEDULER, [], [["CI", 0]] * 60]).flat()
        assert {program.shape for program in found} == {(1, 64 + LONGEST * 18)}

    def test_flat_has_the_numbers_of_each_primitive_and_its_kind(self) -> None:
        flat, rows = tilings([METASCHEDULE]).flat()[0][0], one(METASCHEDULE)
        np.testing.assert_array_equal(rows[0, PROGRAM:], flat[:64])
        second = rows[2, PROGRAM : PROGRAM + 18].copy()
        second[6] += 10 * KINDS.index("spatial")
        np.testing.assert_array_equal(second, flat[64 + 18 : 64 + 36])
        assert not flat[64 + 18 * (len(rows) - 1) :].any()


@pytest.mark.skipif(not DATA.is_dir(), reason="../shared/data with recorded logs is not there")
@pytest.mark.parametrize("name", LOGS)
def test_recorded_logs_are_finite(name: str) -> None:
    batches = list(codecs.read(DATA / name))
    programs = [[json.loads(text) for text in steps] for batch in batches
                for steps in batch.column("steps").to_pylist()]  # fmt: skip
    found = tilings(programs)
    assert len(found) == len(programs) > 0
    assert all(np.isfinite(group).all() for group in found.groups)
    assert all(np.isfinite(program).all() for program in found.flat())


class TestEncoder:
    """Decisions become the rows that the texts of their programs become."""

    POSITIONS = (2, 4, 6, 11, 12)
    OPTIONS = (
        np.array([[7, 1, 4, 2], [1, 7, 8, 1], [56, 1, 1, 1]]),
        np.array([[1, 2, 4, 8], [64, 1, 1, 1]]),
        np.array([[16, 4], [64, 1]]),
        np.array([[0], [16], [64]]),
        np.array([[-2], [-1], [0], [5]]),
    )

    def encoder(self) -> Encoder:
        end = next(i for i, primitive in enumerate(METASCHEDULE) if primitive[0] == "EnterPostproc")
        open_ = [primitive[:4] for primitive in METASCHEDULE[:end]]
        return Encoder(open_, self.POSITIONS, self.OPTIONS)

    def picks(self) -> np.ndarray:
        sizes = [len(options) for options in self.OPTIONS]
        return np.random.default_rng(0).integers(0, sizes, (50, len(sizes)))

    def program(self, picks: np.ndarray) -> Program:
        found = copy.deepcopy(METASCHEDULE)
        for position, options, pick in zip(self.POSITIONS, self.OPTIONS, picks, strict=True):
            sampled = found[position]
            one_of = found[position][0] == "SampleCategorical"
            value = options[pick].tolist() if len(options[pick]) > 1 else int(options[pick, 0])
            sampled[4] = int(pick) if one_of else value
        return found

    def test_rows_are_those_of_the_programs(self) -> None:
        picks, context = self.picks(), np.arange(32, dtype=np.float32)
        expected = tilings([self.program(p) for p in picks], np.tile(context, (len(picks), 1)))
        assert len(expected.groups) == 1
        found = self.encoder().rows(picks, context)
        np.testing.assert_allclose(expected.groups[0], found, rtol=1e-6)

    def test_tokens_are_the_rows_of_every_option(self) -> None:
        encoder, picks = self.encoder(), self.picks()
        first, numbers = encoder.programs(picks, np.zeros(32, np.float32))
        assert len(encoder.tokens) == 3 + 2 + 2 + 2 * 1 + 3 + 4
        assert numbers.max() < len(encoder.tokens)
        assert (first.shape, numbers.shape) == ((50, WIDTH), (50, 7))

    def test_no_programs(self) -> None:
        picks = np.zeros((0, len(self.OPTIONS)), np.int64)
        assert self.encoder().rows(picks, np.zeros(32, np.float32)).shape == (0, 8, WIDTH)

    def test_a_sketch_without_instructions_is_its_context(self) -> None:
        found = Encoder([], [], []).rows(np.zeros((3, 0), np.int64), np.ones(32, np.float32))
        assert found.shape == (3, 1, WIDTH)
