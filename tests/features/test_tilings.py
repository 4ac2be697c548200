from __future__ import annotations

import json

import numpy as np
import pytest

from tunefleet.features import tilings
from tunefleet.features.context import COLUMNS, TaskContext, device_numbers, numbers
from tunefleet.features.tilings import LONGEST, WIDTH, Tilings
from tunefleet.features.words import KINDS

CONTEXT = np.zeros(COLUMNS, np.float32)
#: A matrix product as auto_scheduler writes it for a GPU: 32 x 64 blocks of 1 x 16 threads, ...
GPU = (
    '["SP",3,0,1024,[2,1,8,2],1]',
    '["SP",3,5,512,[1,16,2,1],1]',
    '["SP",3,10,256,[4,2],1]',
    '["RE",3,[0,5,1,6,2,7,10,11,3,8,12,4,9]]',
    '["FSP",6,0,1,3]',
    '["CA",3,6,11]',
    '["CHR",2,"shared",[3]]',
    '["FU",8,[0,1,2,3]]',
    '["AN",8,0,5]',
    '["SP",4,0,676,[4],1]',
    '["AN",4,1,2]',
    '["PR",5,0,"auto_unroll_max_step$64"]',
)


def made(*programs: tuple[str, ...]) -> Tilings:
    texts = list(dict.fromkeys(text for program in programs for text in program))
    codes = np.array([texts.index(text) for program in programs for text in program], np.int64)
    lengths = np.array([len(program) for program in programs], np.int64)
    return Tilings.of(texts, codes, lengths, np.tile(CONTEXT, (len(programs), 1)))


def summary(program: tuple[str, ...]) -> list[float]:
    return [float(round(value, 3)) for value in made(program).ragged()[0][0, 19 + COLUMNS :]]


def kinds(program: tuple[str, ...]) -> list[str]:
    return [KINDS[place - 1] for place in made(program).ragged()[0][1:, :19].argmax(axis=1)]


def test_the_schema_has_a_width() -> None:
    assert (tilings.SCHEMA, WIDTH) == ("tilings/1", 83)


def test_the_main_nest_of_a_gpu_is_summed_by_level() -> None:
    found = summary(GPU)
    # Inner tiles, threads, virtual threads, blocks: innermost first.
    assert found[:5] == [1.0, 4.0, 4.0, 1.0, 9.0]
    assert found[5:8] == [1.0, 2.0, 5.0]
    # Of the last axis alone.
    assert found[8:13] == [0.0, 1.0, 4.0, 0.0, 4.0]
    assert found[20] == pytest.approx(np.log2(65), abs=1e-3)


def test_the_summary_tells_of_what_has_no_row() -> None:
    assert summary(GPU)[29:] == [1.0, 4.0, 1.0]
    told = ["spatial", "spatial", "reduction", "compute_at", "cache_read", "split", "pragma"]
    assert kinds(GPU) == told


def test_programs_that_differ_in_choices_are_one_group() -> None:
    other = tuple(text.replace("[4,2]", "[8,1]") for text in GPU)
    found = made(GPU, other, GPU)
    assert [members.tolist() for members in found.members] == [[0, 1, 2]]
    first, second, third = found.ragged()
    np.testing.assert_array_equal(first, third)
    assert not np.array_equal(first, second)


def test_long_programs_are_cropped_and_flat_ones_are_of_one_width() -> None:
    long = made(*[tuple(f'["CI",{i}]' for i in range(LONGEST + 9)), GPU, ()])
    assert [len(program) for program in long.ragged()] == [LONGEST + 1, 8, 1]
    assert len({program.shape for program in long.flat()}) == 1


def test_what_is_no_primitive_is_refused() -> None:
    with pytest.raises(ValueError, match="a primitive is not"):
        made(('{"a":1}',))


@pytest.mark.parametrize("kind", ["SP", "PR", "CA", "FU", "AN", "RE", "SamplePerfectTile", "Fuse"])
def test_a_name_it_does_not_live_up_to_is_a_knob(kind: str) -> None:
    assert np.isfinite(made((json.dumps([kind]),)).ragged()[0]).all()


def test_metaschedule_is_read_to_its_end() -> None:
    trace = (
        '["GetLoops",["b1"],[],["l4","l5"]]',
        '["SamplePerfectTile",["l4"],[4,64],["v1","v2","v3","v4"],[1,2,3,4]]',
        '["SamplePerfectTile",["l5"],[2,64],["v5","v6"],[8,16]]',
        '["EnterPostproc",[],[],[]]',
        '["SampleCategorical",[],[[0,16],[0.5,0.5]],["v9"],1]',
    )
    assert kinds(trace) == ["spatial", "reduction"]
    assert summary(trace)[5:7] == [4.0, 3.0]


def test_splits_of_autotvm_are_a_nest() -> None:
    config = ('["tile_y","sp",[-1,2,8]]', '["tile_x","sp",[-1,4,1]]', '["unroll","ot",true]')
    assert kinds(config) == ["spatial", "spatial", "knob"]
    assert summary(config)[:3] == [3.0, 3.0, 0.0]
    assert kinds(('["tile_y","sp",[-1,"x"]]',)) == ["knob"]


def test_a_context_tells_the_task_and_the_device() -> None:
    task = TaskContext(((1, 8), (8, 4), (1, 4)), 63.0, "matmul")
    found = numbers(task, device_numbers(gpu=True, units=7))
    assert found[[0, 2, 5, 9, 10, 11, 31]].tolist() == pytest.approx(
        [1.0, 1.0, 6.0, 3.0, np.log2(5), 1.0, 3.0]
    )
