"""Programs written as loops, as kernels of a GPU: their CUDA source, run thread by thread."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from tests.compiler.onnx_nodes import compiled, convert, expected, feed, model, random
from tests.compiler.test_onnx_recurrent import (
    GATES,
    HIDDEN,
    OUTPUTS,
    _by_onnx_runtime,
    _in_bytes,
    _inputs,
    _quantised_lstm,
)

pytestmark = pytest.mark.tvm

_WEIGHTS = {1, 2, 3, 4, 7}


@pytest.fixture(scope="module")
def gpu() -> Any:
    from tunefleet.compiler.toolchain.host import parse_target

    return parse_target("cuda/sm_80")


def prepared(network: Any, target: Any) -> Any:
    from tunefleet.compiler.frontends.relax_ import tidy
    from tunefleet.compiler.graph.pipeline import prepare
    from tunefleet.compiler.toolchain.host import to_tvm

    return prepare(tidy(convert(network)), to_tvm(target))


def task_of(network: Any, target: Any, operator: str) -> Any:
    from tunefleet.compiler.graph.tasks import extract_tasks

    tasks = [weighted.task for weighted in extract_tasks(prepared(network, target), target)]
    return next(task for task in tasks if task.operator == operator)


def recurrent(operator: str, inputs: list[Any], hidden: int = HIDDEN, **attrs: Any) -> Any:
    return model(operator, inputs, OUTPUTS[operator], _WEIGHTS, hidden_size=hidden, **attrs)


def wide(operator: str, hidden: int, batch: int, directions: int = 1) -> list[Any]:
    """Inputs of a layer without biases and states."""
    gates = GATES[operator] * hidden
    return [
        random(3, batch, 5),
        random(directions, gates, 5, seed=1, scale=0.2),
        random(directions, gates, hidden, seed=2, scale=0.2),
    ]


def check(network: Any, inputs: list[Any], gpu: Any, folder: Any, wanted: Any = None) -> Any:
    """The kernels give what ONNX Runtime gives; the network, to be looked at."""
    from tests.emulation.network import Emulated, need_compiler

    need_compiler()
    emulated = Emulated(prepared(network, gpu), gpu, folder)
    arrays = feed(network, inputs)
    wanted = expected(network, arrays) if wanted is None else wanted
    for ours, theirs in zip(emulated(*arrays.values()), wanted, strict=True):
        assert theirs.dtype == ours.dtype
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=3e-6)
    return emulated


@pytest.mark.parametrize("operator", GATES)
def test_sequences_of_unequal_length_in_both_directions(operator, gpu, tmp_path):
    inputs = _inputs(operator, 2, lengths=[2, 4])
    check(recurrent(operator, inputs, direction="bidirectional"), inputs, gpu, tmp_path)


@pytest.mark.parametrize(
    ("operator", "hidden", "batch", "directions"),
    [("LSTM", 75, 3, 1), ("LSTM", 33, 5, 2), ("GRU", 32, 1, 2), ("RNN", 40, 2, 1)],
)
def test_units_and_rows_that_fill_no_block(operator, hidden, batch, directions, gpu, tmp_path):
    inputs = wide(operator, hidden, batch, directions)
    direction = ["reverse", "bidirectional"][directions - 1]
    check(recurrent(operator, inputs, hidden, direction=direction), inputs, gpu, tmp_path)


def test_peepholes_clipped_gates_and_a_product_that_is_reset(gpu, tmp_path):
    inputs = _inputs("LSTM", peepholes=True)
    check(recurrent("LSTM", inputs, input_forget=1, clip=0.5), inputs, gpu, tmp_path)
    inputs = _inputs("GRU")
    check(recurrent("GRU", inputs, linear_before_reset=1), inputs, gpu, tmp_path)


def test_a_layer_in_double_precision(gpu, tmp_path):
    """Which ONNX Runtime does not run: as on a CPU."""
    inputs = [None if i is None else i.astype("float64") for i in _inputs("LSTM")]
    network = recurrent("LSTM", inputs)
    check(network, inputs, gpu, tmp_path, compiled(network, feed(network, inputs)))


@pytest.mark.parametrize(
    "form",
    [
        {},
        {"hidden": 130, "directions": 2},
        {"dtype": "uint8", "points": True, "peeps": True},
        {"points": True, "directions": 2, "lengths": [4]},
    ],
    ids=str,
)
def test_an_lstm_that_is_quantised_as_it_runs(form, gpu, tmp_path):
    inputs = _in_bytes(**form)
    check(_quantised_lstm(inputs), inputs, gpu, tmp_path, _by_onnx_runtime(inputs))


def test_rows_of_a_batch_are_quantised_by_themselves(gpu, tmp_path):
    """The range of all inputs is one in ONNX Runtime: rows of the same numbers have it, too."""
    inputs = _in_bytes(points=True)
    turned = [inputs[0][np.roll(np.arange(6), by)] for by in range(3)]
    alone = [_by_onnx_runtime([row, *inputs[1:]]) for row in turned]
    together = [np.concatenate(turned, 1), *inputs[1:]]
    for state in (5, 6):
        together[state] = np.repeat(inputs[state], 3, 1)
    wanted = [np.concatenate([row[i] for row in alone], axis) for i, axis in enumerate((2, 1, 1))]
    check(_quantised_lstm(together), together, gpu, tmp_path, wanted)


@pytest.mark.parametrize(
    ("operator", "others", "outputs", "attrs"),
    [
        ("CumSum", [np.array(1, "int64")], ["y"], {"exclusive": 1}),
        ("CumSum", [np.array(2, "int64")], ["y"], {"reverse": 1}),
        ("TopK", [np.array([5], "int64")], ["v", "i"], {"axis": 1}),
        ("TopK", [np.array([50], "int64")], ["v", "i"], {"axis": 1, "largest": 0}),
    ],
)
def test_scans_and_orders(operator, others, outputs, attrs, gpu, tmp_path):
    inputs = [random(3, 50, 7), *others]
    check(model(operator, inputs, outputs, {1}, **attrs), inputs, gpu, tmp_path)


@pytest.mark.parametrize("shape", [(300, 40), (3, 20, 7)], ids=str)
def test_rows_that_are_many_or_short_are_selected_from_by_a_thread_each(shape, gpu, tmp_path):
    inputs = [random(*shape), np.array([17], "int64")]
    network = model("TopK", inputs, ["v", "i"], {1}, axis=1)
    check(network, inputs, gpu, tmp_path)


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize(
    ("shape", "axis", "count"), [((1, 1000), 1, 1000), ((2, 65, 3), 1, 7), ((33,), 0, 33)], ids=str
)
def test_many_threads_sort_a_row(shape, axis, count, largest, gpu, tmp_path):
    """Stably, for many elements are alike."""
    x = np.random.default_rng(0).integers(0, 20, shape).astype("float32")
    inputs = [x, np.array([count], "int64")]
    network = model("TopK", inputs, ["v", "i"], {1}, axis=axis, largest=largest)
    check(network, inputs, gpu, tmp_path)


def test_what_is_no_number_comes_after_every_number(gpu, tmp_path):
    from tests.emulation.network import Emulated, need_compiler

    need_compiler()
    x = random(1, 70)
    x[0, [3, 40, 41]], x[0, 7] = np.nan, np.inf
    inputs = [x, np.array([70], "int64")]
    network = model("TopK", inputs, ["v", "i"], {1}, axis=1, largest=0)
    values, indices = Emulated(prepared(network, gpu), gpu, tmp_path)(x)
    np.testing.assert_array_equal(np.sort(x), values)
    np.testing.assert_array_equal(np.argsort(x, kind="stable"), indices)


@pytest.mark.parametrize(("reduction", "rows"), [("add", 3), ("max", 2)])
def test_elements_that_are_scattered_to_one_place(reduction, rows, gpu, tmp_path):
    shape = (3, rows, 90, 7)
    places = np.random.default_rng(0).integers(0, 50, shape)
    inputs = [random(3, 3, 50, 7), places, random(*shape, seed=1)]
    network = model("ScatterElements", inputs, ["y"], {1}, opset=18, axis=2, reduction=reduction)
    check(network, inputs, gpu, tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "wrong"),
    [
        ("__syncthreads();", "", "another thread"),
        ("(v & 1)", "((v + 1) & 1)", "another thread"),
        (">> 3)) < 5)", ">> 3)) < 6)", "out of bounds"),
    ],
)
def test_what_would_be_wrong_is_seen(old, new, wrong, gpu, tmp_path):
    """Without its barrier, with a state that is read and written, with units that there are not."""
    from tests.emulation.network import Emulated, need_compiler

    need_compiler()
    inputs = wide("RNN", 40, 1)
    network = prepared(recurrent("RNN", inputs, 40), gpu)
    with pytest.raises(AssertionError, match=wrong):
        Emulated(network, gpu, tmp_path, lambda source: source.replace(old, new))(inputs[0])


@pytest.mark.parametrize("operator", ["lstm", "gru", "rnn", "bytes", "topk", "cumsum", "scatter"])
def test_kernels_are_one_program_of_the_space_which_nvcc_takes(operator, gpu, tmp_path):
    from tests.compiler.test_cuda_build import candidate, need_nvcc

    from tunefleet.compiler.code.build import build_default
    from tunefleet.compiler.code.replay import completed
    from tunefleet.compiler.space.opening import task_space
    from tunefleet.core.trial import Built

    task = task_of(*NETWORKS[operator](gpu))
    decisions = task_space(task.program, gpu).decisions
    assert [sketch.choices for sketch in decisions.sketches] == [()]
    (trace,) = decisions.traces(decisions.sample(1, np.random.default_rng(0)))
    assert decisions.read(completed(task.program, gpu, trace)) is not None
    need_nvcc()
    assert isinstance(candidate(task.program, gpu, tmp_path), Built)
    assert isinstance(build_default(task.program, gpu, "plain", str(tmp_path)), Built)


#: By operator a network, its target and the operator of its task.
NETWORKS: dict[str, Any] = {
    **{
        name.lower(): lambda gpu, name=name: (
            recurrent(name, wide(name, 75, 3), 75), gpu, name.lower()
        )
        for name in GATES
    },
    "bytes": lambda gpu: (_quantised_lstm(_in_bytes(points=True)), gpu, "lstm"),
    "topk": lambda gpu: (
        model("TopK", [random(3, 50), np.array([5], "int64")], ["v", "i"], {1}), gpu, "topk",
    ),
    "relu": lambda gpu: (model("Relu", [random(30, 50)]), gpu, "relu"),
    "cumsum": lambda gpu: (
        model("CumSum", [random(3, 50), np.array(1, "int64")], ["y"], {1}), gpu, "cumsum",
    ),
    "scatter": lambda gpu: (
        model(
            "ScatterElements", [random(3, 50), np.zeros((3, 5), "int64"), random(3, 5)],
            ["y"], {1}, opset=18, reduction="add", axis=1,
        ),
        gpu, "scatter",
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", [(96, 3), (1024, 2)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_kernels_keep_the_limits_of_a_gpu(form, dtype, gpu):
    from tests.emulation.rewriting import STATIC

    from tunefleet.compiler.code.build import lowered
    from tunefleet.compiler.code.device_code import device_sources
    from tunefleet.compiler.space.spaces import plainly_scheduled
    from tunefleet.compiler.toolchain.programs import load_program

    hidden, batch = form
    inputs = [i.astype(dtype) for i in wide("LSTM", hidden, batch)]
    task = task_of(recurrent("LSTM", inputs, hidden), gpu, "lstm")
    module = plainly_scheduled(load_program(task.program), gpu)
    (source,) = device_sources(lowered(module, gpu))
    sizes = {"float": 4, "double": 8}
    shared = sum(sizes[kind] * int(n) for _, kind, _, n in STATIC.findall(source))
    threads = [int(n) for n in re.findall(r"__launch_bounds__\((\d+)", source)]
    assert 0 < shared <= gpu.shared_memory_bytes
    assert max(threads) <= gpu.threads_per_block


@pytest.mark.parametrize("most", [32, 64, 128])
@pytest.mark.parametrize("operator", ["lstm", "bytes", "topk", "cumsum", "scatter", "relu"])
def test_kernels_keep_a_users_limit_of_threads(operator, most):
    from tests.emulation.library import source_of_module
    from tests.emulation.network import scheduled

    from tunefleet.compiler.toolchain.host import parse_target

    target = parse_target(f"cuda/sm_80 -max_threads_per_block={most}")
    network, _, _ = NETWORKS[operator](target)
    modules = scheduled(prepared(network, target), target).values()
    texts = "".join(source_of_module(module, target) for module in modules)
    assert max(int(n) for n in re.findall(r"__launch_bounds__\((\d+)", texts)) <= most


@pytest.mark.parametrize("operator", ["LSTM", "GRU"])
def test_a_layer_in_blocks_of_one_warp(operator, tmp_path):
    from tunefleet.compiler.toolchain.host import parse_target

    target = parse_target("cuda/sm_80 -max_threads_per_block=32")
    inputs = wide(operator, 40, 3)
    check(recurrent(operator, inputs, 40), inputs, target, tmp_path)


def test_a_cpu_has_loops_and_nothing_of_kernels(gpu, target):
    network = recurrent("LSTM", _inputs("LSTM"))
    texts = [task_of(network, each, "lstm").program for each in (target, gpu)]
    assert ["blockIdx.x" in text for text in texts] == [False, True]
    assert not any("tunefleet.kernels" in text for text in texts)


def test_a_network_with_a_recurrent_layer_is_compiled_for_a_gpu(gpu, tmp_path):
    from tests.compiler.test_cuda_build import need_nvcc

    from tunefleet.compiler.code.executable import compile_network, save_network

    need_nvcc()
    network = prepared(recurrent("LSTM", _inputs("LSTM")), gpu)
    save_network(compile_network(network, gpu, {}), tmp_path / "net.so")
    assert b"__global__" not in (tmp_path / "net.so").read_bytes()


def test_programs_of_independent_steps_of_torch(gpu, tmp_path):
    torch = pytest.importorskip("torch")
    from tests.emulation.network import Emulated, need_compiler

    from tunefleet.compiler.frontends import ImportRequest, load_network
    from tunefleet.compiler.graph.pipeline import prepare
    from tunefleet.compiler.toolchain.host import to_tvm

    need_compiler()

    class Steps(torch.nn.Module):  # type: ignore[name-defined]
        def forward(self, x: Any) -> Any:
            values, places = torch.cummax(x, 1)
            edges = torch.tensor([-0.5, 0.0, 0.25, 0.9])
            return values, places, torch.bucketize(x, edges), *torch.mode(torch.round(x), 1)

    given = torch.from_numpy(random(3, 37, 5))
    path = tmp_path / "steps.pt2"
    torch.export.save(torch.export.export(Steps().eval(), (given,)), path)
    loaded = load_network(path, ImportRequest(tmp_path, whole=True))
    emulated = Emulated(prepare(loaded.mod, to_tvm(gpu)), gpu, tmp_path)
    *found, index = emulated(given.numpy())
    for ours, theirs in zip(found, Steps()(given), strict=False):
        np.testing.assert_array_equal(ours, theirs.numpy())
    # Which of the equal ones torch names depends on its sort.
    named = np.take_along_axis(given.numpy().round(), index[:, None], 1)[:, 0]
    np.testing.assert_array_equal(named, found[-1])
