from __future__ import annotations

import json
import math

import pytest
from hypothesis import example, given

from tunefleet.features.words import KINDS, NUMBERS, Skeleton, compressed, parse, skeleton

from .programs import AUTO_SCHEDULER, AUTOTVM, KERNEL_TUNER, METASCHEDULE, PRIMITIVES, Program


def choice(*primitive: object) -> tuple[float, ...]:
    return parse(json.dumps(primitive))[1]


def words(program: Program) -> Skeleton:
    return skeleton(tuple(parse(json.dumps(primitive))[0] for primitive in program))[0]


def kinds(program: Program) -> list[str]:
    return [word.kind for word in words(program).words]


def log(value: float) -> float:
    return math.log2(1 + value)


class TestChoices:
    @pytest.mark.parametrize(
        ("extent", "inner_to_outer", "expected"),
        [(64, 1, (4, 2, 8)), (64, True, (4, 2, 8)), (64, 0, (2, 8, 4)), (50, 1, (4, 2, 8)),
         (0, 1, (0, 2, 8)), (None, 1, (0, 2, 8))],
    )  # fmt: skip
    def test_a_split_has_the_factor_that_is_left(
        self, extent: int, inner_to_outer: int, expected: tuple[int, ...]
    ) -> None:
        assert expected == choice("SP", 3, 4, extent, [2, 8], inner_to_outer)

    def test_splits_that_differ_in_factors_are_one_word(self) -> None:
        first, other = (parse(f'["SP",3,0,56,[{f},7],1]')[0] for f in (1, 2))
        assert first == other

    def test_a_pragma_is_told_by_its_name_and_chosen_by_its_number(self) -> None:
        first, other = (parse(f'["PR",1,0,"unroll${n}"]') for n in (16, 512))
        assert first[0] == other[0] != parse('["PR",1,0,"vectorize$16"]')[0]
        assert (first[1], other[1]) == ((log(16),), (log(512),))

    def test_a_pragma_without_a_number_chooses_none(self) -> None:
        assert choice("PR", 1, 0, "tensor_core") == (0.0,)

    def test_where_a_stage_is_computed_is_a_choice_but_for_whose_stage(self) -> None:
        first, moved, other = (
            parse(json.dumps(["CA", *v])) for v in [(3, 6, 11), (3, 6, 2), (3, 7, 2)]
        )
        assert first[0] == moved[0] != other[0]
        assert (first[1], moved[1]) == ((log(11),), (log(2),))

    def test_what_metaschedule_samples_is_a_choice(self) -> None:
        found = [choice(*p) for p in METASCHEDULE if str(p[0]).startswith("Sample")]
        assert found == [(7, 1, 4, 2), (1, 2, 4, 8), (16, 4), (log(64),), (5,)]

    def test_parameters_are_knobs_of_their_name(self) -> None:
        first, other = (parse(f'["block_size_x",{n}]') for n in (16, 32))
        assert first[0] == other[0] == '["?","block_size_x"]'
        assert (first[1][-1], other[1][-1]) == (log(16), log(32))

    def test_an_entity_of_autotvm_keeps_its_factors(self) -> None:
        assert choice("tile_f", "sp", [-1, 2, 8, 16]) == (1, 2, 8, 16)

    @pytest.mark.parametrize(
        "primitive",
        [["SP", 1], ["SP", 1, 0, 8, [None], 1], ["SP", "a", 0, 8, [2], 1],
         ["SP", 1, 0, 8, [float("inf")], 1], ["SP", 1, 0, 10**400, [2], 1],
         ["SP", 1, 0, "x", [0], 1], ["PR", 1, 0, 3], ["CA", 1, "a", 2],
         ["SamplePerfectTile", ["l"], [4, 64], ["v"], [2, 2]],
         ["SamplePerfectTile", [], [1, 64], ["v"], [2]], ["SamplePerfectTile", ["l"], [2], []],
         ["SampleCategorical", [], [[1, 2], [0.5, 0.5]], ["v"], 7],
         ["SampleComputeLocation", ["b"], [], ["l"], 1e300], ["GetLoops"], ["Split", 1, 2, 3],
         ["ReverseComputeAt", ["b"], [], []], ["EnterPostproc"]],
    )  # fmt: skip
    def test_what_does_not_live_up_to_its_name_is_a_knob(self, primitive: list[object]) -> None:
        assert kinds([primitive]) == ["knob"]

    @pytest.mark.parametrize("text", ["", "{}", "3", "[", '"SP"', "[" * 100_000])
    def test_what_is_no_array_is_refused(self, text: str) -> None:
        with pytest.raises(ValueError, match="a primitive is not"):
            parse(text)

    @given(PRIMITIVES)
    @example(["CA", 1, float("nan"), 2])
    def test_any_array_has_words_and_finite_numbers(self, value: list[object]) -> None:
        key, found = parse(json.dumps(value))
        told, which = skeleton((key,))
        assert all(map(math.isfinite, found))
        assert all(math.isfinite(n) for word in told.words for n in word.numbers)
        assert all(word.kind in KINDS and len(word.numbers) <= NUMBERS for word in told.words)
        assert len(told.words) == len(told.choices) == len(which)


class TestSkeletons:
    def test_auto_scheduler(self) -> None:
        expected = ["inline", "spatial", "spatial", "reduction", "reorder", "follow", "compute_at",
                    "annotate", "pragma"]  # fmt: skip
        assert expected == kinds(AUTO_SCHEDULER)
        assert words(AUTO_SCHEDULER).choices == (0, 4, 4, 2, 0, 0, 1, 0, 1)

    def test_metaschedule(self) -> None:
        expected = ["spatial", "spatial", "reduction", "cache_write", "compute_at", "annotate",
                    "unroll", "location"]  # fmt: skip
        assert expected == kinds(METASCHEDULE)
        assert words(METASCHEDULE).choices == (4, 4, 2, 0, 0, 0, 1, 1)

    def test_other_tuners_have_knobs(self) -> None:
        assert kinds(AUTOTVM) == ["spatial", "knob"]
        assert kinds(KERNEL_TUNER) == ["knob"] * len(KERNEL_TUNER)

    def test_each_word_knows_its_primitive(self) -> None:
        keys = tuple(parse(json.dumps(primitive))[0] for primitive in METASCHEDULE)
        assert skeleton(keys)[1] == (2, 4, 6, 8, 9, 10, 11, 12)

    def test_nothing_is_read_beyond_the_decisions(self) -> None:
        end = next(i for i, primitive in enumerate(METASCHEDULE) if primitive[0] == "EnterPostproc")
        assert words(METASCHEDULE[:end]) == words(METASCHEDULE)

    def test_axes_are_counted_from_the_end(self) -> None:
        splits = [w for w in words(METASCHEDULE).words if w.kind in ("spatial", "reduction")]
        assert [word.place for word in splits] == [1, 0, 0]

    def test_a_split_of_another_nest_is_of_neither_kind(self) -> None:
        assert kinds([*AUTO_SCHEDULER, ["SP", 7, 0, 96, [4], 1]])[-1] == "split"

    def test_a_stage_that_a_cache_has_moved_is_not_the_nest_it_was(self) -> None:
        before, after = ["SP", 3, 0, 8, [1, 2, 2], 1], ["SP", 3, 4, 8, [1, 2, 2], 1]
        found = words([before, before, ["CHW", 2, "local"], after]).words
        assert found[0].nest == found[1].nest != found[3].nest

    @pytest.mark.parametrize(("loop", "level"), [("l16", 1), ("l17", 2), ("l9", 2), ("l1", 0)])
    def test_a_block_moved_to_a_loop_has_the_level_of_its_split(
        self, loop: str, level: int
    ) -> None:
        """0 for a loop that no split made."""
        program = [*METASCHEDULE[:9], ["ReverseComputeAt", ["b24", loop], [1, -1], []]]
        assert words(program).words[-1].numbers == (level,)

    def test_no_primitives_have_no_words(self) -> None:
        assert skeleton(()) == (Skeleton((), ()), ())


@pytest.mark.parametrize(
    ("value", "expected"),
    [(-7, -3.0), (0, 0.0), (True, 1.0), (math.inf, 62.0), (10**400, 62.0), (math.nan, 0.0)],
)
def test_numbers_are_compressed_and_bounded(value: float, expected: float) -> None:
    assert expected == pytest.approx(compressed(value))


@pytest.mark.parametrize(
    ("name", "extents"),
    [
        ("tunefleet.vnni.16x4", (16, 4)),
        ("dot_16x4_vnni", (16, 4)),
        ("wmma_sync_16x16x16_f16f16f32", (16, 16, 16)),
        ("mma_m8n32k16_nt", (8, 32, 16)),
        ("dp4a", ()),
    ],
)
def test_an_intrinsic_is_known_by_family_and_shape(name: str, extents: tuple[int, ...]) -> None:
    (word,) = words([["Tensorize", ["l0"], [name, 1], []]]).words
    assert word.kind == "other"
    assert word.numbers[2:] == tuple(compressed(float(n)) for n in extents)


def test_shapes_of_an_intrinsic_are_of_one_family() -> None:
    def numbers(name: str) -> tuple[float, ...]:
        (word,) = words([["Tensorize", ["l0"], [name, 1], []]]).words
        return word.numbers

    assert numbers("tunefleet.vnni.16x4")[:2] == numbers("tunefleet.vnni.8x4")[:2]
    assert numbers("tunefleet.vnni.16x4")[:2] != numbers("tunefleet.avx512.int8.16x4")[:2]
