"""The CUDA space as arrays of decisions: MetaSchedule's programs, within a GPU's limits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tunefleet.errors import ForeignError

pytestmark = pytest.mark.tvm

NAMES = ["conv", "winograd", "matmul", "mean", "transpose"]


@pytest.fixture(scope="module")
def gpu() -> Any:
    from tunefleet.compiler.toolchain.host import parse_target

    return parse_target("cuda/sm_80")


@pytest.fixture(scope="module")
def programs_of(tiny: Any) -> dict[str, str]:
    """A task of each kind, one of them with a second form."""
    found = {weighted.task.name: weighted.task.program for weighted in tiny.tasks}
    convolutions = [w.task for w in tiny.tasks if w.task.name.startswith("conv2d")]
    return {
        "conv": next(t.program for t in convolutions if "1x1x16x32" in t.shapes),
        "winograd": convolutions[0].program,
        **{
            name: next(p for n, p in found.items() if n.startswith(name))
            for name in ("matmul", "mean", "transpose")
        },
    }


@pytest.fixture(scope="module")
def spaces(programs_of: dict[str, str], gpu: Any) -> dict[str, Any]:
    from tunefleet.compiler.space.opening import task_space

    return {name: task_space(program, gpu) for name, program in programs_of.items()}


def bred(space: Any, count: int) -> Any:
    rng = np.random.default_rng(7)
    parents = space.decisions.sample(64, rng)
    crossed = space.decisions.cross(parents, space.decisions.sample(64, rng), rng)
    return space.decisions.mutate(crossed, rng).take(np.arange(count))


def verdicts(space: Any, program: str, gpu: Any, picks: Any, sketch: int) -> list[bool]:
    """Whether MetaSchedule's postprocessing takes programs of a sketch."""
    from tunefleet.compiler.code.replay import replay
    from tunefleet.compiler.toolchain.programs import load_program

    def taken(trace: str) -> bool:
        try:
            replay(load_program(program), gpu, trace)
        except ForeignError:
            return False
        return True

    return [taken(t) for t in space.decisions.traces(space.decisions.population(sketch, picks))]


@pytest.mark.parametrize("name", ["conv", "winograd"])
def test_limits_say_which_programs_a_gpu_takes(
    name: str, spaces: dict[str, Any], programs_of: dict[str, str], gpu: Any
) -> None:
    rng = np.random.default_rng(3)
    for number, sketch in enumerate(spaces[name].decisions.sketches):
        assert {limit.name for limit in sketch.limits} >= {"threads", "shared memory"}
        picks = replace(sketch, limits=()).sample(512, rng)
        keeps = sketch.keeps(picks)
        assert 0 < keeps.sum() < len(keeps)
        some = np.concatenate([np.flatnonzero(keeps)[:4], np.flatnonzero(~keeps)[:4]])
        said = verdicts(spaces[name], programs_of[name], gpu, picks[some], number)
        assert said == keeps[some].tolist()


@pytest.mark.parametrize("name", NAMES)
def test_what_is_sampled_and_bred_keeps_the_limits(name: str, spaces: dict[str, Any]) -> None:
    decisions = spaces[name].decisions
    population = bred(spaces[name], 64)
    for number, sketch in enumerate(decisions.sketches):
        rows = population.rows(number)
        picks = population.picks[rows, : len(sketch.choices)].astype(np.int64)
        assert sketch.keeps(picks).all()


@pytest.mark.parametrize("name", NAMES)
def test_a_program_reads_as_itself(
    name: str, spaces: dict[str, Any], programs_of: dict[str, str], gpu: Any
) -> None:
    from tunefleet.compiler.code.replay import completed

    decisions = spaces[name].decisions
    for program in bred(spaces[name], 4):
        (trace,) = decisions.traces(program)
        assert decisions.read(trace).keys() == program.keys()
        assert not program.not_in(decisions.adapt(trace)).any()
        whole = completed(programs_of[name], gpu, trace)
        assert decisions.read(whole).keys() == program.keys()


def _has_narrower_vectors(form: Any, trace: str) -> bool:
    """Than MetaSchedule has drawn."""
    from tunefleet.compiler.code.fetching import fitting
    from tunefleet.compiler.toolchain import load_tvm

    schedule, parsed = load_tvm().s_tir.Schedule(form), json.loads(trace)
    load_tvm().s_tir.schedule.Trace.apply_json_to_schedule(parsed, schedule)
    return fitting(parsed, schedule) is not None


@pytest.mark.parametrize("name", NAMES)
def test_programs_of_metaschedules_search_are_programs_of_the_space(
    name: str, spaces: dict[str, Any], programs_of: dict[str, str], gpu: Any
) -> None:
    import tvm

    from tunefleet.compiler.code.replay import replay
    from tunefleet.compiler.code.unrolling import leave_to_nvcc
    from tunefleet.compiler.graph.forms import forms
    from tunefleet.compiler.space.spaces import tune_contexts
    from tunefleet.compiler.toolchain.programs import load_program, trace_text

    found = 0
    for form in forms(load_program(programs_of[name])):
        for context in tune_contexts(form, gpu, "replay-trace", seed=3):
            strategy, designs = context.search_strategy, context.generate_design_space()
            if not designs:  # these networks are of floats, which tensor cores do not multiply
                continue
            strategy.pre_tuning(12, 12, designs, None, None)
            for candidate in strategy.generate_measure_candidates() or ():
                read = spaces[name].decisions.read(trace_text(candidate.sch.trace))
                assert read is not None
                (trace,) = spaces[name].decisions.traces(read)
                own = replay(load_program(programs_of[name]), gpu, trace)
                if _has_narrower_vectors(form, trace):
                    continue
                # Of which TVM compiles some only so.
                leave_to_nvcc(candidate.sch)
                tvm.ir.assert_structural_equal(candidate.sch.mod, own.mod, map_free_vars=True)
                found += 1
    assert found


@pytest.mark.parametrize("name", NAMES)
def test_decisions_are_encoded_as_the_traces_they_make(name: str, spaces: dict[str, Any]) -> None:
    from tunefleet.features.tilings import Tilings

    space, context = spaces[name], np.arange(32, dtype=np.float32)
    population = bred(space, 6)
    for members, encoded in space.encoded(population, context):
        texts = list(_texts(space.decisions.traces(population.take(members))))
        flat = [text for program in texts for text in program]
        lengths = np.array([len(program) for program in texts], np.int64)
        contexts = np.tile(context, (len(texts), 1))
        expected = Tilings.of(flat, np.arange(len(flat)), lengths, contexts).ragged()
        for rows, of_trace in zip(encoded.rows(), expected, strict=True):
            np.testing.assert_allclose(of_trace, rows, rtol=1e-6, atol=1e-6)


def _texts(traces: list[str]) -> Iterator[list[str]]:
    for trace in traces:
        instructions, decisions = json.loads(trace)
        decided = dict(decisions)
        yield [
            json.dumps([*instruction, decided[i]] if i in decided else instruction)
            for i, instruction in enumerate(instructions)
        ]


def test_all_that_is_decided_is_told(spaces: dict[str, Any]) -> None:
    """Programs that differ in one decision, a fetch's width or a reduction's threads, say, differ
    in their features."""
    context = np.zeros(32, np.float32)
    for name in NAMES:
        population = spaces[name].decisions.sample(64, np.random.default_rng(0)).distinct()
        rows = [
            row.tobytes()
            for _, encoded in spaces[name].encoded(population, context)
            for row in encoded.rows()
        ]
        told = {(len(row), row) for row in rows}
        # Sketches may differ in annotations that are not told.
        assert len(told) >= len(rows) / len(spaces[name].decisions.sketches)


def test_a_search_is_steered_by_recorded_latencies(spaces: dict[str, Any], gpu: Any) -> None:
    """Of programs whose latencies are made up of their threads, it comes to prefer fast ones."""
    from tunefleet.core.settings import SearchSettings
    from tunefleet.features import unpack
    from tunefleet.search.guide import Guide
    from tunefleet.search.selection import SelectRequest, select

    space = spaces["conv"]

    def latency(trace: str) -> float:
        read = space.decisions.read(trace)
        sketch = space.decisions.sketches[int(read.sketch[0])]
        (threads,) = (limit for limit in sketch.limits if limit.name == "threads")
        values = space.decisions.values(read, int(read.sketch[0]))
        return float(1.0 / threads.amounts[0].of(values)[0])

    settings = SearchSettings(population=128, generations=2)
    request = SelectRequest("", gpu, settings, batch=48, seed=1)
    first = select(request, space, None).candidates
    latencies = np.array([latency(c.trace) for c in first])
    guide = Guide.load(
        None,
        "xgb",
        Guide.learn(
            None, "xgb", [unpack(c.features) for c in first], latencies.min() / latencies,
            ["conv"] * len(first), (),
        ),
    )  # fmt: skip
    second = select(
        replace(request, tried=frozenset(c.candidate_id for c in first)), space, guide
    ).candidates
    assert np.median([latency(c.trace) for c in second]) < np.median(latencies)


@pytest.mark.parametrize("name", NAMES)
def test_a_plain_schedule_binds_every_block_to_threads(
    name: str, programs_of: dict[str, str], gpu: Any
) -> None:
    from tunefleet.compiler.code.build import lowered
    from tunefleet.compiler.code.device_code import device_sources
    from tunefleet.compiler.graph.forms import forms
    from tunefleet.compiler.space.spaces import plainly_scheduled
    from tunefleet.compiler.toolchain.programs import load_program

    direct, *_ = forms(load_program(programs_of[name]))
    (source,) = device_sources(lowered(plainly_scheduled(direct, gpu), gpu))
    assert "threadIdx.x" in source


@pytest.mark.parametrize("operator", ["TopK", "CumSum", "ScatterND"])
def test_what_runs_as_written_has_code_for_a_gpu(operator: str, gpu: Any) -> None:
    """Loops have memory that a thread of a GPU has too, and kernels are taken as they are."""
    from tests.compiler.onnx_nodes import convert, model, random

    from tunefleet.compiler.code.build import lowered
    from tunefleet.compiler.code.device_code import device_sources
    from tunefleet.compiler.graph.pipeline import prepare
    from tunefleet.compiler.graph.tasks import extract_tasks
    from tunefleet.compiler.space.spaces import plainly_scheduled
    from tunefleet.compiler.toolchain.host import to_tvm
    from tunefleet.compiler.toolchain.programs import load_program

    number = np.array([1], "int64")
    inputs = {
        "TopK": [random(4, 200), np.array([7], "int64")],
        "CumSum": [random(4, 200), number],
        "ScatterND": [random(8, 4), np.array([[1], [3]], "int64"), random(2, 4)],
    }[operator]
    outputs = ["a", "b"] if operator == "TopK" else ["a"]
    network = model(operator, inputs, outputs, {1})
    tasks = extract_tasks(prepare(convert(network), to_tvm(gpu)), gpu)
    assert tasks
    for weighted in tasks:
        module = plainly_scheduled(load_program(weighted.task.program), gpu)
        (source,) = device_sources(lowered(module, gpu))
        assert "__global__" in source
