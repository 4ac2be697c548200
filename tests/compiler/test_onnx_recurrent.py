"""LSTM, GRU and RNN give what ONNX Runtime gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.compiler.onnx_nodes import check, compiled, convert, expected, feed, model, random

pytestmark = pytest.mark.tvm

STEPS, BATCH, INPUT, HIDDEN = 4, 2, 3, 4
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
OUTPUTS = {"RNN": ["y", "h"], "GRU": ["y", "h"], "LSTM": ["y", "h", "c"]}


def _inputs(operator, directions=1, bias=True, initial=True, lengths=None, peepholes=False):
    size, layers = GATES[operator] * HIDDEN, directions
    inputs = [
        random(STEPS, BATCH, INPUT),
        random(layers, size, INPUT, seed=1),
        random(layers, size, HIDDEN, seed=2),
        random(layers, 2 * size, seed=3) if bias else None,
        None if lengths is None else np.array(lengths, "int32"),
        random(layers, BATCH, HIDDEN, seed=4) if initial else None,
    ]
    if operator == "LSTM":
        inputs.append(random(layers, BATCH, HIDDEN, seed=5) if initial else None)
        inputs.append(random(layers, 3 * HIDDEN, seed=6) if peepholes else None)
    return inputs


def _check(operator, inputs, **attrs):
    outputs = OUTPUTS[operator]
    weights = {1, 2, 3, 4, 7}
    check(operator, inputs, outputs=outputs, constants=weights, hidden_size=HIDDEN, **attrs)


@pytest.mark.parametrize("operator", GATES)
def test_without_bias_and_initial_state(operator):
    _check(operator, _inputs(operator, bias=False, initial=False))


@pytest.mark.parametrize("operator", GATES)
def test_sequences_of_unequal_length_in_both_directions(operator):
    _check(operator, _inputs(operator, 2, lengths=[2, 4]), direction="bidirectional")


@pytest.mark.parametrize("operator", GATES)
def test_gates_are_clipped(operator):
    inputs = [None if i is None else 3 * i for i in _inputs(operator)]
    _check(operator, inputs, clip=0.5, direction="reverse")


@pytest.mark.parametrize("coupled", [0, 1])
def test_lstm_with_peepholes(coupled):
    _check("LSTM", _inputs("LSTM", peepholes=True), input_forget=coupled)


@pytest.mark.parametrize("bias", [True, False])
def test_gru_that_resets_after_the_product(bias):
    _check("GRU", _inputs("GRU", bias=bias), linear_before_reset=1)


@pytest.mark.parametrize(
    ("names", "alphas", "betas"),
    [
        (["HardSigmoid", "Softsign", "Tanh"], [0.3], [0.4]),
        (["Sigmoid", "ScaledTanh", "Affine"], [0.7, 0.6], [0.8, 0.1]),
        (["Sigmoid", "LeakyRelu", "Elu"], [0.2, 0.5], []),
        (["Sigmoid", "ThresholdedRelu", "Softplus"], [0.3], []),
        (["Sigmoid", "relu", "tanh"], [], []),
    ],
)
def test_activations_take_their_parameters_in_order(names, alphas, betas):
    _check(
        "LSTM",
        _inputs("LSTM"),
        activations=names,
        **({"activation_alpha": alphas} if alphas else {}),
        **({"activation_beta": betas} if betas else {}),
    )


@pytest.mark.parametrize("operator", ["GRU", "LSTM"])
def test_batch_may_come_first(operator):
    """ONNX Runtime has no layout 1: the same layer with layout 0 tells what to expect."""
    inputs = _inputs(operator, 2)
    form: dict[str, Any] = {
        "outputs": OUTPUTS[operator],
        "constants": {1, 2, 3, 7},
        "hidden_size": HIDDEN,
    }
    form["direction"] = "bidirectional"
    plain = model(operator, inputs, **form)
    y, *states = compiled(plain, feed(plain, inputs))
    swapped = [
        a if a is None or i in {1, 2, 3, 7} else np.ascontiguousarray(np.swapaxes(a, 0, 1))
        for i, a in enumerate(inputs)
    ]
    first = model(operator, swapped, layout=1, **form)
    results = compiled(first, feed(first, swapped))
    wanted = [y.transpose(2, 0, 1, 3), *(np.swapaxes(s, 0, 1) for s in states)]
    for result, want in zip(results, wanted, strict=True):
        np.testing.assert_allclose(result, want, rtol=1e-5, atol=1e-6)


def test_all_steps_and_directions_are_one_program():
    from tunefleet.compiler.frontends import onnx_graph

    tvm = onnx_graph.tvm
    inputs = _inputs("LSTM", 2, initial=True)
    form: dict[str, Any] = {"hidden_size": HIDDEN, "direction": "bidirectional"}
    network = model("LSTM", inputs, ["y", "h", "c"], {1, 2, 3}, **form)
    mod = tvm.relax.transform.LegalizeOps()(convert(network))
    names = [g.name_hint for g in mod.get_global_vars()]
    assert [name for name in names if name.startswith("lstm")] == ["lstm"]
    assert [name for name in names if name.startswith("matmul")] == ["matmul"]


@pytest.mark.parametrize("operator", GATES)
def test_weights_and_lengths_may_be_computed(operator):
    inputs = _inputs(operator, lengths=[2, 4])
    check(operator, inputs, outputs=OUTPUTS[operator], hidden_size=HIDDEN)


def test_directions_may_have_activations_of_their_own():
    names = ["Sigmoid", "Tanh", "Tanh", "HardSigmoid", "Relu", "Softsign"]
    _check("LSTM", _inputs("LSTM", 2), direction="bidirectional", activations=names)


def test_a_batch_that_is_no_multiple_of_what_is_computed_together():
    inputs = [random(3, 5, 7), random(1, 40, 7, seed=1), random(1, 40, 10, seed=2)]
    check("LSTM", inputs, outputs=["y"], constants={1, 2}, hidden_size=10)


def test_the_graph_pipeline_leaves_no_packing_to_be_computed(target):
    """Weights are packed when the network is imported, not at each inference."""
    from tunefleet.compiler.graph.pipeline import prepare
    from tunefleet.compiler.graph.tasks import extract_tasks
    from tunefleet.compiler.toolchain.host import to_tvm

    inputs = [random(6, 1, 8), random(2, 96, 8, seed=1), random(2, 96, 32, seed=2)]
    inputs.append(random(2, 192, seed=3))
    form: dict[str, Any] = {
        "hidden_size": 32,
        "direction": "bidirectional",
        "linear_before_reset": 1,
    }
    network = model("GRU", inputs, ["y"], {1, 2, 3}, **form)
    prepared = prepare(convert(network), to_tvm(target))
    tasks = extract_tasks(prepared, target)
    assert {"gru", "matmul"} == {weighted.task.operator for weighted in tasks}


def _bytes(shape, dtype, seed):
    limits = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(limits.min + 1, limits.max + 1, shape, dtype)


def _in_bytes(
    hidden=40, directions=1, dtype="int8", columns=False, points=False, lengths=None, peeps=False
):
    """Inputs of an LSTM that ONNX Runtime quantises as it runs."""
    scales = (directions, 4 * hidden) if columns else (directions,)
    middle = 128 if dtype == "uint8" else 0
    state = (directions, 1, hidden)
    inputs = [
        random(6, 1, INPUT),
        _bytes((directions, INPUT, 4 * hidden), dtype, 1),
        _bytes((directions, hidden, 4 * hidden), dtype, 2),
        random(directions, 8 * hidden, seed=3),
        None if lengths is None else np.array(lengths, "int32"),
        *(random(*state, seed=seed, scale=0.3) for seed in (4, 5)),
        random(directions, 3 * hidden, seed=6) if peeps else None,
    ]
    for seed in (7, 8):
        inputs.append(0.004 + 0.001 * np.abs(random(*scales, seed=seed)))
        inputs.append(np.full(scales, middle + 17 * points, dtype))
    return inputs


def _quantised_lstm(inputs):
    return model(
        "DynamicQuantizeLSTM", inputs, OUTPUTS["LSTM"], {1, 2, 3, 4, 7, 8, 9, 10, 11},
        "com.microsoft", hidden_size=inputs[2].shape[1],
        direction="bidirectional" if len(inputs[2]) == 2 else "reverse",
    )  # fmt: skip


def _by_onnx_runtime(inputs):
    network = _quantised_lstm(inputs)
    return expected(network, feed(network, inputs))


@pytest.mark.parametrize(
    "form",
    [
        {},
        {"hidden": 130, "directions": 2},
        {"hidden": 600},  # threads share the units of one sequence
        {"dtype": "uint8", "columns": True, "directions": 2},
        {"dtype": "uint8", "points": True, "peeps": True},
        {"points": True, "directions": 2, "lengths": [4]},
    ],
    ids=str,
)
def test_an_lstm_that_is_quantised_as_it_runs(form):
    inputs = _in_bytes(**form)
    network = _quantised_lstm(inputs)
    ours = compiled(network, feed(network, inputs))
    for one, wanted in zip(ours, _by_onnx_runtime(inputs), strict=True):
        np.testing.assert_allclose(one, wanted, atol=2e-6)


def test_each_row_of_a_batch_is_quantised_by_its_own_values():
    """ONNX Runtime's rows depend on how many threads it has: it runs one row at a time here. The
    inputs of all have one range, since those are quantised together."""
    inputs = _in_bytes(points=True)
    orders = [np.random.default_rng(seed).permutation(6) for seed in range(3)]
    rows = [[inputs[0][order], *inputs[1:]] for order in orders]
    together = [np.concatenate([row[0] for row in rows], 1), *inputs[1:]]
    for state in (5, 6):
        together[state] = np.repeat(inputs[state], 3, 1)
    network = _quantised_lstm(together)
    whole, _, cells = compiled(network, feed(network, together))
    for index, row in enumerate(rows):
        wanted = _by_onnx_runtime(row)
        np.testing.assert_allclose(whole[:, :, index], wanted[0][:, :, 0], atol=2e-6)
        np.testing.assert_allclose(cells[:, index], wanted[2][:, 0], atol=2e-6)


@pytest.mark.parametrize(("hidden", "batch"), [(40, 1), (256, 3), (600, 1)])
def test_bytes_are_multiplied_in_pairs(hidden, batch):
    """LLVM finds the instruction by itself, or takes three times as long."""
    from tunefleet.compiler.code.build import lowered
    from tunefleet.compiler.toolchain.host import parse_target

    inputs = _in_bytes(hidden)
    inputs[0] = np.repeat(inputs[0], batch, 1)
    for state in (5, 6):
        inputs[state] = np.repeat(inputs[state], batch, 1)
    module = convert(_quantised_lstm(inputs))
    functions = {v.name_hint: f for v, f in module.functions_items() if v.name_hint == "lstm"}
    (function,) = functions.values()
    alone = type(module)({"lstm": function.with_attr("global_symbol", "lstm")})
    code = lowered(alone, parse_target("llvm -mcpu=haswell -num-cores=1")).inspect_source("asm")
    # 16 products of numbers of 8 bits each, for every row by the same code.
    assert code.count("vpmaddwd") == -(-hidden // 64) * 4
