from __future__ import annotations

import json
from math import prod
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunefleet.dataset.flop_rules import (
    UNKNOWN,
    Certainty,
    Flops,
    auto_scheduler_flops,
    metaschedule_flops,
)
from tunefleet.dataset.flops import SEVERAL_TASKS, FlopCounter, flops_by_workload, flops_of

from .records import Record, table
from .tables import a_batch, a_record


def tiled(
    space: list[int], reduce: list[int], stage: int = 2, space_parts: int = 4, reduce_parts: int = 2
) -> list[list[Any]]:
    """The splits of multi-level tiling and the reorder that ends it."""
    steps, place = [], 0
    for extent, parts in [*((n, space_parts) for n in space), *((n, reduce_parts) for n in reduce)]:
        steps.append(["SP", stage, place, extent, [1] * parts, 1])
        place += parts + 1
    return [*steps, ["RE", stage, list(range(place))]]


def test_a_matmul_on_a_gpu() -> None:
    # Of a log of a 2080 Ti: BERT, [128, 768] x [3072, 768].
    assert auto_scheduler_flops("", tiled([128, 3072], [768])) == Flops(
        603979776.0, Certainty.EXACT, "tiled contraction"
    )


def test_a_convolution_on_a_cpu() -> None:
    # [1, 28, 28, 512] by 1x1x512x1024 with stride 2.
    steps = tiled([1, 14, 14, 1024], [1, 1, 512], space_parts=3, reduce_parts=1)
    assert auto_scheduler_flops("", steps).count == 205520896


def test_a_depthwise_convolution() -> None:
    steps = tiled([128, 168, 42, 42], [5, 5])
    assert auto_scheduler_flops("", steps).count == 2 * 128 * 168 * 42 * 42 * 5 * 5


def test_consumers_and_cooperative_fetching_add_nothing() -> None:
    steps = [
        ["CHW", 2, "local"],
        *tiled([64, 32], [16]),
        ["FSP", 3, 0, 1, 3],
        ["CHR", 1, "shared", [3]],
        ["FU", 2, [0, 1]],
        ["SP", 2, 0, 4096, [4], 1],
        # What was stage 2 is stage 3 since the cache was inserted before it.
        ["SP", 3, 0, 8, [2], 1],
    ]
    assert Flops(65536.0, Certainty.EXACT, "tiled contraction") == auto_scheduler_flops("", steps)


def test_several_contractions_add_up() -> None:
    steps = [*tiled([8, 8], [4], stage=5), *tiled([8, 8], [2], stage=2)]
    assert auto_scheduler_flops("", steps).count == 2 * 64 * 6


def test_winograd_is_estimated() -> None:
    found = auto_scheduler_flops("", tiled([4, 4, 49, 256], [256]))
    assert (found.count, found.how) == (102760448, Certainty.ESTIMATED)


def test_iterators_that_are_not_split_make_an_estimate() -> None:
    steps = tiled([64, 64], [64])
    steps[-1][2].append(99)
    assert Certainty.ESTIMATED is auto_scheduler_flops("", steps).how


def test_a_contraction_without_reduction_has_one_operation_each() -> None:
    assert Flops(4096.0, Certainty.ESTIMATED, "part of the loops of a contraction") == (
        auto_scheduler_flops("", tiled([64, 64], []))
    )


def test_without_contraction_the_largest_stage_or_argument_counts() -> None:
    steps = [["FU", 1, [0, 1]], ["SP", 1, 0, 200704, [32], 1]]
    assert auto_scheduler_flops('["f", [1, 56, 56, 64]]', steps).count == 200704
    assert auto_scheduler_flops('["f", [1, 112, 112, 64]]', steps).count == 802816


def test_nothing_known_is_unknown() -> None:
    assert auto_scheduler_flops('["f"]', [["FU", 1, [0, 1]]]) == UNKNOWN
    assert auto_scheduler_flops("no json", []) == UNKNOWN
    assert flops_of("kernel_tuner", "convolution", [['["block_size_x",16]']]) == UNKNOWN


@pytest.mark.parametrize(
    ("count", "how"), [(None, Certainty.EXACT), (1.0, Certainty.UNKNOWN), (0.0, Certainty.EXACT)]
)
def test_flops_that_contradict_themselves_are_refused(count: float | None, how: Certainty) -> None:
    with pytest.raises(ValueError, match="FLOPs"):
        Flops(count, how)


def test_extents_that_cannot_be_true_are_unknown() -> None:
    assert auto_scheduler_flops("", tiled([2**63] * 20, [2**63])) == UNKNOWN
    assert auto_scheduler_flops('["f", [4611686018427387904, 4611686018427387904]]', []) == UNKNOWN


@given(
    st.lists(st.integers(1, 64), min_size=2, max_size=4),
    st.lists(st.integers(1, 64), min_size=1, max_size=3),
)
def test_any_complete_tiling_is_exact(space: list[int], reduce: list[int]) -> None:
    found = auto_scheduler_flops("", tiled(space, reduce))
    assert 2 * prod(space) * prod(reduce) == found.count


def test_the_first_exact_program_decides() -> None:
    part = [["SP", 2, 0, 64, [8], 1]]
    programs = [[json.dumps(step) for step in steps] for steps in (part, tiled([8, 8], [8]))]
    assert Flops(1024.0, Certainty.EXACT, "tiled contraction") == flops_of(
        "auto_scheduler", '["f"]', programs
    )


def test_each_workload_is_counted_over_batches() -> None:
    rows = [
        a_record(workload='["a"]', steps=[["SP", 2, 0, 64, [8], 1]]),
        a_record(workload='["b"]', steps=tiled([8, 8], [8]), error_no=4),
    ]
    later = [a_record(workload='["a"]', steps=tiled([4, 4], [4]))]
    found = flops_by_workload([a_batch(rows), a_batch(later)])
    assert {key: flops.count for key, flops in found.items()} == {
        ("auto_scheduler", '["a"]'): 128.0,
        ("auto_scheduler", '["b"]'): 1024.0,
    }


@pytest.mark.parametrize("files", ["abc", "aaa"])
def test_one_key_for_several_tasks_is_unknown(files: str) -> None:
    counter = FlopCounter()
    for file, size in zip(files, (8, 16, 4), strict=True):
        row = a_record(source=file, steps=tiled([size, size], [size]))
        counter.add(a_batch([row] * 20))
    assert list(counter.flops.values()) == [SEVERAL_TASKS]


def test_a_program_that_tells_less_does_not_change_what_is_exact() -> None:
    part = a_record(steps=[["SP", 2, 0, 64, [8], 1]])
    found = flops_by_workload([a_batch([part, a_record(steps=tiled([8, 8], [8])), part])])
    assert [flops.how for flops in found.values()] == [Certainty.EXACT]


def test_a_trace_of_metaschedule() -> None:
    # Of a log of an Apple GPU: conv2d_nchw, [1, 4, 64, 64] by [4, 4, 1, 1].
    decisions = [[1, 1, 1, 1, 1], [1, 1, 4, 1, 1], [4, 1, 8, 2, 1], [16, 1, 1, 4, 1]]
    decisions += [[4, 1, 1], [1, 1, 1], [1, 1, 1]]
    loops = [f"l{i}" for i in range(7)]
    steps: list[list[Any]] = [["GetLoops", ["b1"], [], loops]]
    for loop, tiles in zip(loops, decisions, strict=True):
        steps.append(["SamplePerfectTile", [loop], [5, 64], [], tiles])
    found = metaschedule_flops(steps)
    assert (found.count, found.how) == (131072, Certainty.ESTIMATED)
    assert metaschedule_flops([*steps, ["Blockize", ["l1"], [], ["b2"]]]) == UNKNOWN
    assert metaschedule_flops([["Fuse", ["l1"], [], ["l2"]]]) == UNKNOWN


def test_a_record_of_our_own_tells_what_the_compiler_counted() -> None:
    def found(extra: str) -> Flops:
        row = a_record(format="metaschedule", steps=[["GetSBlock", [], [], []]], extra=extra)
        (flops,) = flops_by_workload([a_batch([row])]).values()
        return flops

    assert found('{"flops":128.0}') == Flops(128.0, Certainty.EXACT, "counted by the compiler")
    # A transpose computes nothing.
    assert found('{"flops":0.0}').count is None


@pytest.mark.parametrize("format", ["auto_scheduler", "metaschedule"])
@pytest.mark.parametrize("step", ["no JSON", "5", "[]", '["SP"]', '["GetLoops",[],[],5]'])
def test_what_is_no_program_tells_nothing(format: str, step: str) -> None:
    assert flops_of(format, "w", [[step]]).how is Certainty.UNKNOWN


@pytest.mark.parametrize("told", ['"abc"', "[1]", "-5", "NaN", "1e999"])
def test_flops_that_cannot_be_are_not_believed(told: str) -> None:
    records = table([Record(steps=('["CI",0]',))])
    place = records.schema.get_field_index("extra")
    field = records.schema.field(place)
    extra = pa.array([f'{{"flops":{told}}}']).dictionary_encode().cast(field.type)
    (flops,) = flops_by_workload(records.set_column(place, field, extra).to_batches()).values()
    assert flops.count is None
