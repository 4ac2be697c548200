"""Attention over numbers of tokens that vectors do not divide is padded, and computes the same."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytestmark = pytest.mark.tvm

Attention = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], Any]

TOKENS = 21  # becomes 24
GPU = "cuda/sm_80"


def imported(attention: Attention, tokens: int = TOKENS) -> tuple[Any, list[Any], list[Any]]:
    """The imported network, inputs, and what torch makes of them."""
    from tunefleet.compiler.frontends import load_network

    class Network(torch.nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
            return attention(q, k, v)

    torch.manual_seed(0)
    inputs = tuple(torch.randn(2, 3, tokens, 8) for _ in range(3))
    program = torch.export.export(Network().eval(), inputs)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network.pt2"
        torch.export.save(program, path)
        network = load_network(path)
        arrays = [x.numpy() for x in inputs]
        return network.mod, arrays, network.reference(arrays, 1)


def extents_on_gpu(mod: Any) -> set[int]:
    """The last extents of softmax's inputs."""
    from tunefleet.compiler.graph.pipeline import prepare
    from tunefleet.compiler.graph.tasks import extract_tasks
    from tunefleet.compiler.toolchain.host import parse_target, to_tvm

    target = parse_target(GPU, None)
    tasks = [w.task for w in extract_tasks(prepare(mod, to_tvm(target)), target)]
    return {int(t.shapes.rpartition("x")[2]) for t in tasks if "softmax" in t.name}


def check_outputs(mod: Any, inputs: list[Any], expected: list[Any]) -> None:
    """What the processor makes of it, as the pipeline leaves it and padded as for a GPU."""
    import tvm

    from tunefleet.compiler.code.executable import compile_network, run_compiled
    from tunefleet.compiler.graph.attention import pad_attention
    from tunefleet.compiler.graph.pipeline import prepare
    from tunefleet.compiler.graph.simplify import simplify
    from tunefleet.compiler.toolchain.host import native_target, to_tvm

    target = native_target(1)
    padded = pad_attention(simplify(tvm.relax.transform.CanonicalizeBindings()(mod)))
    for each in (mod, padded):
        network = compile_network(prepare(each, to_tvm(target)), target, {})
        for actual, wanted in zip(run_compiled(network, inputs), expected, strict=True):
            np.testing.assert_allclose(actual, wanted, rtol=1e-4, atol=1e-5)


def scores(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return q @ k.transpose(-1, -2)


MASKED = torch.rand(TOKENS, TOKENS, generator=torch.Generator().manual_seed(0)) < 0.3
MASK = torch.where(MASKED, -torch.inf, 0.0).fill_diagonal_(0.0)

PADDED: dict[str, Attention] = {
    "plain": lambda q, k, v: scores(q, k).softmax(-1) @ v,
    "scaled": lambda q, k, v: (scores(q, k) / 8**0.5).softmax(-1) @ v,
    "negative scale": lambda q, k, v: (scores(q, k) * -0.5).softmax(-1) @ v,
    "masked": lambda q, k, v: (scores(q, k) * 0.5 + MASK).softmax(-1) @ v,
    "bias of an input": lambda q, k, v: (scores(q, k) + v[..., :1]).softmax(-1) @ v,
    "bounded": lambda q, k, v: (torch.tanh(scores(q, k)) * 5).softmax(-1) @ v,
    "chosen": lambda q, k, v: torch.where(MASK < 0, -1e9, scores(q, k)).softmax(-1) @ v,
    "reshaped": lambda q, k, v: (
        scores(q, k).reshape(6, TOKENS, TOKENS).softmax(-1).reshape(2, 3, TOKENS, TOKENS) @ v
    ),
    "without NaN": lambda q, k, v: (
        torch.where(scores(q, k).softmax(-1).isnan(), 0.0, scores(q, k).softmax(-1)) @ v
    ),
    "of torch": lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(q, k, v),
    "of torch, masked": lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=MASK
    ),
    "causal": lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(
        q, k, v, is_causal=True
    ),
    "twice": lambda q, k, v: scores(scores(q, k).softmax(-1) @ v, k).softmax(-1) @ v,
}

LEFT: dict[str, Attention] = {
    "weights are an output": lambda q, k, v: ((w := scores(q, k).softmax(-1)) @ v, w),
    "scores are an output": lambda q, k, v: ((s := scores(q, k)).softmax(-1) @ v, s),
    "summed": lambda q, k, v: scores(q, k).softmax(-1).sum(-1),
    "another axis": lambda q, k, v: scores(q, k).softmax(-2) @ v,
}


@pytest.mark.parametrize("name", PADDED)
def test_padded_attention_computes_the_same(name: str) -> None:
    mod, inputs, expected = imported(PADDED[name])
    assert extents_on_gpu(mod) <= {24}
    check_outputs(mod, inputs, expected)


@pytest.mark.parametrize("name", LEFT)
def test_what_is_used_elsewhere_stays(name: str) -> None:
    mod, inputs, expected = imported(LEFT[name])
    assert extents_on_gpu(mod) <= {TOKENS}
    check_outputs(mod, inputs, expected)


@pytest.mark.parametrize(("tokens", "extent"), [(16, 16), (17, 17), (49, 56), (50, 56), (197, 208)])
def test_rows_become_little_longer(tokens: int, extent: int) -> None:
    mod, inputs, expected = imported(PADDED["plain"], tokens)
    assert extents_on_gpu(mod) == {extent}
    check_outputs(mod, inputs, expected)
