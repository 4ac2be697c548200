"""Programs as arrays of decisions are the programs that MetaSchedule makes."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tunefleet.core.forms import tile_height
from tunefleet.core.trial import Built

pytestmark = pytest.mark.tvm


@pytest.fixture(scope="module")
def tasks(tiny: Any) -> dict[str, Any]:
    """One task of each kind, smallest first where there are several."""
    found = {}
    for weighted in tiny.tasks:
        kernel = weighted.task.shapes.split()[1]
        found[f"{weighted.task.name} {kernel}"] = weighted.task
    return {
        "conv": found["conv2d+add+relu 3x3x3x16"],
        "narrow": found["conv2d+add+relu 1x1x16x32"],
        "wide": found["conv2d+add 1x1x32x32"],
        "matmul": next(task for name, task in found.items() if name.startswith("matmul")),
        "mean": next(task for name, task in found.items() if name.startswith("mean")),
        "transpose": next(t for name, t in found.items() if name.startswith("transpose ")),
    }


@pytest.fixture(scope="module")
def spaces(tasks: dict[str, Any], target: Any) -> dict[str, Any]:
    from tunefleet.compiler.space.opening import sketches_of
    from tunefleet.search.decisions import DecisionSpace

    return {
        name: DecisionSpace.of(sketches_of(task.program, target)) for name, task in tasks.items()
    }


def programs(space: Any, count: int = 6) -> Any:
    """Of every sketch, bred for a while."""
    rng = np.random.default_rng(7)
    parents = space.sample(64, rng)
    children = space.mutate(space.cross(parents, space.sample(64, rng), rng), rng)
    return children.take(np.arange(count))


def trace_of(space: Any, program: Any) -> str:
    (trace,) = space.traces(program)
    return str(trace)


@pytest.mark.parametrize("name", ["conv", "narrow", "transpose"])
def test_a_program_reads_as_itself(
    name: str, spaces: dict[str, Any], tasks: dict[str, Any], target: Any
) -> None:
    from tunefleet.compiler.code.replay import completed

    space = spaces[name]
    for program in programs(space):
        trace = trace_of(space, program)
        assert space.read(trace).keys() == program.keys()
        postprocessed = completed(tasks[name].program, target, trace)
        assert space.read(postprocessed).keys() == program.keys()


@pytest.mark.parametrize("name", ["conv", "matmul", "mean", "transpose"])
def test_a_completed_trace_makes_the_same_program_with_tvm_alone(
    name: str, spaces: dict[str, Any], tasks: dict[str, Any], target: Any
) -> None:
    import tvm

    from tunefleet.compiler.code.replay import completed, replay
    from tunefleet.compiler.space.padded_rows import form_of
    from tunefleet.compiler.toolchain.programs import load_program

    program = tasks[name].program
    for trace in spaces[name].traces(programs(spaces[name])):
        whole = completed(program, target, trace)
        alone = tvm.s_tir.Schedule(form_of(load_program(program), trace))
        tvm.s_tir.schedule.Trace.apply_json_to_schedule(json.loads(whole), alone)
        tvm.ir.assert_structural_equal(
            alone.mod, replay(load_program(program), target, trace).mod, map_free_vars=True
        )
        assert completed(program, target, whole) == whole


@pytest.mark.parametrize("name", ["conv", "matmul", "mean", "transpose"])
def test_programs_of_metaschedules_search_are_programs_of_the_space(
    name: str, spaces: dict[str, Any], tasks: dict[str, Any], target: Any
) -> None:
    import tvm

    from tunefleet.compiler.code.replay import replay
    from tunefleet.compiler.space.spaces import tune_contexts
    from tunefleet.compiler.toolchain.programs import load_program, trace_text

    program = tasks[name].program
    *_, context = tune_contexts(load_program(program), target, "replay-trace", seed=3)
    strategy = context.search_strategy
    strategy.pre_tuning(8, 8, context.generate_design_space(), None, None)
    found = strategy.generate_measure_candidates()
    assert found
    for candidate in found:
        read = spaces[name].read(trace_text(candidate.sch.trace))
        assert read is not None
        own = replay(load_program(program), target, trace_of(spaces[name], read))
        tvm.ir.assert_structural_equal(candidate.sch.mod, own.mod, map_free_vars=True)


@pytest.mark.parametrize("name", ["conv", "wide", "matmul", "mean", "transpose"])
def test_a_program_builds(
    name: str, spaces: dict[str, Any], tasks: dict[str, Any], target: Any, tmp_path: Any
) -> None:
    from tunefleet.compiler.code.build import build_candidate

    for trace in spaces[name].traces(programs(spaces[name], 2)):
        built = build_candidate(tasks[name].program, target, "x", trace, str(tmp_path))
        assert isinstance(built, Built)


def test_tiles_are_perfect_and_a_tasks_own(spaces: dict[str, Any]) -> None:
    space = spaces["conv"]
    population = space.sample(100, np.random.default_rng(0))
    for s in range(len(space.sketches)):
        values = space.values(population, s)
        if space.forms[s] == 0:
            assert [int(v[0].prod()) for v in values[:7]] == [1, 16, 16, 16, 3, 3, 3]
        assert all((v.prod(axis=1) == v[0].prod()).all() for v in values[:7])
        assert {len(v) for v in values} == {len(population.rows(s))}


def test_what_cannot_change_stays(spaces: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    population = spaces["transpose"].sample(5, rng)
    assert population.picks.shape == (5, 0)
    assert spaces["transpose"].mutate(population, rng).keys() == population.keys()
    assert len(spaces["transpose"].cross(population, population, rng)) == 5
    assert len(population.distinct()) == 1


def test_a_program_without_a_partner_stays(spaces: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    population = spaces["conv"].sample(60, rng)
    first, second = (population.take(population.rows(s)) for s in (0, 1))
    assert spaces["conv"].cross(first, second, rng).keys() == first.keys()
    assert spaces["conv"].cross(first, first, rng).keys() != first.keys()


def test_decisions_fit_another_convolution(
    spaces: dict[str, Any], tasks: dict[str, Any], target: Any
) -> None:
    from tunefleet.compiler.code.replay import replay
    from tunefleet.compiler.toolchain.programs import load_program

    module = load_program(tasks["wide"].program)
    for program in programs(spaces["narrow"]):
        source = trace_of(spaces["narrow"], program)
        adapted = spaces["wide"].adapt(source)
        heights = {tile_height(trace) for trace in spaces["wide"].traces(adapted)}
        if tile_height(source):
            # The other task may not have this register tile.
            assert heights <= {tile_height(source)}
            continue
        assert 1 <= len(adapted) <= 2
        assert heights == {0}
        assert all(replay(module, target, trace) for trace in spaces["wide"].traces(adapted))
        # Of 16 and of 32 channels: the vector's factor is the source's.
        mine = spaces["wide"].values(adapted.take(np.array([0])), int(program.sketch[0]))
        theirs = spaces["narrow"].values(program, int(program.sketch[0]))
        assert mine[3][0, -1] == theirs[3][0, -1]


def test_a_tasks_own_trace_adapts_to_itself(spaces: dict[str, Any]) -> None:
    program = programs(spaces["conv"], 1)
    source = trace_of(spaces["conv"], program)
    assert spaces["conv"].adapt(source).keys() == program.keys()


@pytest.mark.parametrize("trace", ["", "nonsense", "[]", "[[],[]]", "[[[1,2,3,4]],[]]", "{}"])
def test_what_is_no_trace_gives_no_program(trace: str, spaces: dict[str, Any]) -> None:
    assert len(spaces["conv"].adapt(trace)) == 0
    assert spaces["conv"].read(trace) is None


def test_a_measured_trace_of_no_program_of_the_space_is_left_out(
    tasks: dict[str, Any], target: Any
) -> None:
    from tunefleet.compiler.space.opening import task_space

    assert len(task_space(tasks["mean"].program, target).read(["[[],[]]"])) == 0


def test_a_trace_without_its_decisions_gives_no_program(spaces: dict[str, Any]) -> None:
    from tunefleet.core.ids import canonical_json

    bare = canonical_json([spaces["conv"].sketches[0].instructions, []])
    assert len(spaces["conv"].adapt(bare)) == 0
    assert spaces["conv"].read(bare) is None


@pytest.mark.parametrize("decision", [None, [], [0, 0, 0, 0], "x", [1, 2], 99, 1.5])
def test_strange_decisions_raise_nothing(decision: Any, spaces: dict[str, Any]) -> None:
    from tunefleet.core.ids import canonical_json

    sketch = spaces["conv"].sketches[0]
    strange = canonical_json([sketch.instructions, [[p, decision] for p in sketch.positions]])
    assert spaces["conv"].read(strange) is None
    assert len(spaces["conv"].adapt(strange)) <= 2


def test_a_trace_of_something_else_gives_no_program(spaces: dict[str, Any]) -> None:
    transpose = spaces["transpose"]
    source = trace_of(transpose, transpose.sample(1, np.random.default_rng(0)))
    assert len(spaces["conv"].adapt(source)) == 0
    assert spaces["conv"].read(source) is None
    assert len(transpose.adapt(source)) == 1


@pytest.mark.parametrize("name", ["conv", "narrow", "matmul", "mean", "transpose"])
def test_decisions_are_encoded_as_the_traces_they_make(name: str, spaces: dict[str, Any]) -> None:
    from tunefleet.features.tilings import Encoder, Tilings

    space, context = spaces[name], np.arange(32, dtype=np.float32)
    population = programs(space)
    for number, sketch in enumerate(space.sketches):
        own = population.take(population.rows(number))
        texts: list[list[str]] = []
        for program in own:
            instructions, decisions = json.loads(trace_of(space, program))
            decided = dict(decisions)
            texts.append(
                [
                    json.dumps([*instruction, decided[i]] if i in decided else instruction)
                    for i, instruction in enumerate(instructions)
                ]
            )
        flat = [text for program in texts for text in program]
        lengths = np.array([len(program) for program in texts], np.int64)
        contexts = np.tile(context, (len(own), 1))
        expected = Tilings.of(flat, np.arange(len(flat)), lengths, contexts).ragged()
        options = [choice.options for choice in sketch.choices]
        encoder = Encoder(sketch.instructions, sketch.positions, options)
        picks = own.picks[:, : len(options)].astype(np.int64)
        for rows, of_trace in zip(encoder.rows(picks, context), expected, strict=True):
            np.testing.assert_allclose(of_trace, rows, rtol=1e-6)
