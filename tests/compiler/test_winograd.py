"""Convolutions in Winograd's form: what they compute, where they are offered, what is delivered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tunefleet.core.forms import is_winograd
from tunefleet.core.trial import Built

pytestmark = pytest.mark.tvm


def convolved(data: Any, weight: Any, padding: tuple[int, int, int, int]) -> Any:
    """NHWC and HWIO, in float64."""
    top, left, bottom, right = padding
    padded = np.pad(data.astype(np.float64), [(0, 0), (top, bottom), (left, right), (0, 0)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))  # type: ignore[call-overload]
    return np.einsum("nyxihw,hwio->nyxo", windows, weight.astype(np.float64), optimize=True)


def network(channels: int = 64, size: int = 18) -> tuple[Any, Any]:
    """Two convolutions with bias and ReLU, the second beside a shortcut; and its input."""
    from tunefleet.compiler.toolchain import load_tvm

    relax = load_tvm().relax
    rng = np.random.default_rng(1)

    def constant(*shape: int) -> Any:
        return relax.const(rng.standard_normal(shape, dtype=np.float32) / 20)

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, channels, size, size), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = x
            for _ in range(2):
                weight = constant(channels, channels, 3, 3)
                y = builder.emit(relax.op.nn.conv2d(y, weight, padding=(1, 1)))
                y = builder.emit(relax.op.add(y, constant(1, channels, 1, 1)))
                y = builder.emit(relax.op.nn.relu(y))
            found = builder.emit_output(relax.op.add(y, x))
        builder.emit_func_output(found)
    return builder.get(), rng.standard_normal((1, channels, size, size), dtype=np.float32)


@pytest.fixture(scope="module")
def prepared(target: Any) -> tuple[Any, Any]:
    from tunefleet.compiler.graph.pipeline import prepare
    from tunefleet.compiler.toolchain.host import to_tvm

    mod, data = network()
    return prepare(mod, to_tvm(target)), data


@pytest.fixture(scope="module")
def traces(prepared: tuple[Any, Any], target: Any) -> dict[str, tuple[Any, str]]:
    """By task: the task and a trace of its other form."""
    from tunefleet.compiler.graph.tasks import extract_tasks
    from tunefleet.compiler.space.opening import sketches_of
    from tunefleet.search.decisions import DecisionSpace

    found = {}
    for weighted in extract_tasks(prepared[0], target):
        if weighted.task.operator != "conv2d":
            continue
        space = DecisionSpace.of(sketches_of(weighted.task.program, target))
        random = space.traces(space.sample(40, np.random.default_rng(1)))
        assert {True, False} == {is_winograd(trace) for trace in random}
        trace = next(trace for trace in random if is_winograd(trace))
        found[weighted.task.task_id] = (weighted.task, trace)
    return found


@pytest.mark.parametrize(
    ("shape", "padding"), [((1, 8, 8, 16), (1, 1, 1, 1)), ((2, 7, 10, 32), (0, 1, 2, 0))]
)
def test_it_is_the_convolution(
    shape: tuple[int, ...], padding: tuple[int, int, int, int], target: Any, tmp_path: Path
) -> None:
    from tunefleet.compiler.code.build import compile_module
    from tunefleet.compiler.graph import winograd
    from tunefleet.compiler.graph.tasks import normalized
    from tunefleet.compiler.space.plain import plainly_scheduled
    from tunefleet.compiler.toolchain import load_tvm

    tvm = load_tvm()
    data = tvm.te.placeholder(shape, name="data")
    weight = tvm.te.placeholder((36, shape[3], 16), name="weight")
    output = winograd.convolution(data, weight, padding)
    function = tvm.te.create_prim_func([data, weight, output])
    built = compile_module(plainly_scheduled(normalized(function)), target, "w", str(tmp_path))
    assert isinstance(built, Built)
    rng = np.random.default_rng(2)
    x = rng.standard_normal(shape, dtype=np.float32)
    w = rng.standard_normal((3, 3, shape[3], 16), dtype=np.float32)
    expected = convolved(x, w, padding)
    actual = tvm.runtime.tensor(np.zeros(expected.shape, np.float32))
    main = tvm.runtime.load_module(built.path)["main"]
    main(tvm.runtime.tensor(x), tvm.runtime.tensor(winograd.transformed(w)), actual)
    assert np.abs(actual.numpy() - expected).max() < 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize(
    ("channels", "size", "offered"),
    [(64, 18, True), (64, 4, False), (8, 64, False), (36, 64, False)],
    ids=["pays", "weights are most of it", "nothing to gain", "vectors do not divide it"],
)
def test_it_is_offered_where_it_may_pay(
    channels: int, size: int, offered: bool, target: Any
) -> None:
    from tunefleet.compiler.graph.forms import forms
    from tunefleet.compiler.graph.pipeline import prepare
    from tunefleet.compiler.graph.tasks import extract_tasks
    from tunefleet.compiler.toolchain.host import to_tvm
    from tunefleet.compiler.toolchain.programs import load_program

    mod, _ = network(channels, size)
    tasks = extract_tasks(prepare(mod, to_tvm(target)), target)
    convolutions = [w.task for w in tasks if w.task.operator == "conv2d"]
    assert len(convolutions) == 2
    assert {1 + offered} == {len(forms(load_program(task.program))) for task in convolutions}


def test_a_task_stays_itself_with_another_form(prepared: tuple[Any, Any], target: Any) -> None:
    from tunefleet.compiler.graph.forms import direct
    from tunefleet.compiler.graph.tasks import extract_tasks
    from tunefleet.compiler.toolchain import load_tvm

    tvm = load_tvm()
    tasks = extract_tasks(prepared[0], target)
    plain = tvm.IRModule(
        {
            g: direct(f) if isinstance(f, tvm.tirx.PrimFunc) else f
            for g, f in prepared[0].functions_items()
        }
    )
    alone = extract_tasks(plain, target)
    assert [(w.task.task_id, w.task.flops) for w in alone] == [
        (w.task.task_id, w.task.flops) for w in tasks
    ]


def test_candidates_compute_what_the_default_computes(
    traces: dict[str, tuple[Any, str]], target: Any, tmp_path: Path
) -> None:
    from tunefleet.compiler.code.build import build_candidate, build_default
    from tunefleet.stages.work import check_output

    directory = str(tmp_path)
    for task, trace in traces.values():
        default = build_default(task.program, target, "default", directory)
        built = build_candidate(task.program, target, "c", trace, directory)
        assert isinstance(default, Built)
        assert isinstance(built, Built)
        assert check_output(default, built, seed=1).difference == ""


def test_delivered_modules_hold_the_weights_of_the_form(
    prepared: tuple[Any, Any], traces: dict[str, tuple[Any, str]], target: Any
) -> None:
    from tunefleet.compiler.code.executable import compile_network, run_compiled, worst_difference

    module, data = prepared
    expected = run_compiled(compile_network(module, target, {}), [data])
    chosen = {task_id: trace for task_id, (_, trace) in traces.items()}
    network = compile_network(module, target, chosen)
    sizes = {array.size for array in network.weights.arrays}
    assert 36 * 64 * 64 in sizes
    assert 9 * 64 * 64 not in sizes
    assert worst_difference(expected, run_compiled(network, [data])) < 1e-5


def test_a_form_of_which_little_is_known_is_tried_whatever_its_score(
    traces: dict[str, tuple[Any, str]], target: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tunefleet.compiler.space.opening import sketches_of, task_space
    from tunefleet.core.settings import SearchSettings
    from tunefleet.search import selection as select
    from tunefleet.search.decisions import DecisionSpace

    def direct_first(selection: Any, population: Any) -> Any:
        return 1.0 - selection._space.decisions.forms[population.sketch]

    def chosen(known: list[str], batch: int = 8) -> int:
        request = select.SelectRequest(
            task.program,
            target,
            SearchSettings(population=64, generations=1, random_share=0.0),
            batch=batch,
            seed=1,
            known=tuple((str(i), trace, 1e-3) for i, trace in enumerate(known)),
        )
        guide: Any = Indifferent()
        found = select.select(request, task_space(task.program, target), guide).candidates
        return sum(is_winograd(candidate.trace) for candidate in found)

    class Indifferent:
        def predict(self, programs: Any) -> Any:
            return np.zeros(len(programs))

    monkeypatch.setattr(select._Selection, "_score", direct_first)
    task, _ = next(iter(traces.values()))
    space = DecisionSpace.of(sketches_of(task.program, target))
    random = space.traces(space.sample(80, np.random.default_rng(3)))
    tried = [trace for trace in random if is_winograd(trace)]
    assert len(tried) >= select._FORM_TRIALS
    assert chosen([]) == 5
    assert chosen(tried) == 0

    spread, wanted = select._spread, []

    def spread_out(ranked: Any, count: int) -> Any:
        wanted.append(count)
        return spread(ranked, count)

    monkeypatch.setattr(select, "_spread", spread_out)
    chosen([], batch=1)
    assert wanted == [0]


def test_networks_that_were_fused_in_another_way_keep_the_direct_form(target: Any) -> None:
    from tunefleet.compiler.graph.forms import with_forms
    from tunefleet.compiler.graph.pipeline import prepare
    from tunefleet.compiler.toolchain.host import to_tvm

    mod, other = (prepare(network(size=size)[0], to_tvm(target)) for size in (4, 6))
    assert with_forms(mod, other) is mod
