"""The blocks that the zoo's networks are made of pass the whole import path with torch's outputs.

Blocks, not networks: they have every operator, and compile in a second.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.tvm, pytest.mark.filterwarnings("ignore")]


def _resnext() -> Any:
    import torch
    from torch import nn

    from tunefleet.zoo.blocks import finish
    from tunefleet.zoo.cnn_resnet import _bottleneck

    block = _bottleneck(groups=8, group_width=4)(16, 64, 2)
    return finish(nn.Sequential(nn.Conv2d(3, 16, 1), block)), torch.randn(1, 3, 8, 8)


def _resnet3d() -> Any:
    import torch

    from tunefleet.zoo.blocks import finish
    from tunefleet.zoo.cnn_resnet3d import _Basic

    return finish(_Basic(8, 16, 2), sample=torch.randn(2, 8, 4, 8, 8)), torch.randn(1, 8, 4, 8, 8)


def _mobilenet_v3() -> Any:
    import torch
    from torch import nn

    from tunefleet.zoo.blocks import finish
    from tunefleet.zoo.cnn_mobilenet_v3 import _Inverted

    block = _Inverted(16, (5, 64, 24, True, True, 2))
    return finish(nn.Sequential(nn.Conv2d(3, 16, 1), block)), torch.randn(1, 3, 8, 8)


def _efficientnet() -> Any:
    import torch
    from torch import nn

    from tunefleet.zoo.blocks import finish
    from tunefleet.zoo.cnn_efficientnet import _Inverted

    block = _Inverted(16, 16, kernel=3, stride=1, expansion=6)
    return finish(nn.Sequential(nn.Conv2d(3, 16, 1), block)), torch.randn(1, 3, 8, 8)


def _convnext() -> Any:
    import torch

    from tunefleet.zoo.blocks import perturb_norms
    from tunefleet.zoo.cnn_convnext import _Block

    return perturb_norms(_Block(32)), torch.randn(2, 32, 8, 8)


def _swin() -> Any:
    import torch
    from torch import nn

    from tunefleet.zoo.blocks import perturb_norms
    from tunefleet.zoo.swin import _Block, _Merge

    return perturb_norms(nn.Sequential(_Block(64, 14, 3), _Merge(64))), torch.randn(2, 14, 14, 64)


def _mixer() -> Any:
    import torch

    from tunefleet.zoo.blocks import perturb_norms
    from tunefleet.zoo.mixer import _Layer

    return perturb_norms(_Layer(9, 32)), torch.randn(2, 9, 32)


def _t5() -> Any:
    from tunefleet.zoo import parse
    from tunefleet.zoo.transformers_ import _t5

    module, inputs = _t5(parse("t5_small?batch=2&size=8"), num_layers=1, vocab_size=50)
    return module, inputs["input_ids"]


def _llama() -> Any:
    from tunefleet.zoo import parse
    from tunefleet.zoo.transformers_ import _llama

    spec = parse("llama_tiny?batch=2&size=8")
    module, inputs = _llama(spec, vocab_size=50, hidden_size=128, num_hidden_layers=1)
    return module, inputs["input_ids"]


def _dcgan() -> Any:
    from tunefleet.zoo import build

    network = build("zoo:dcgan?size=32")
    return network.module, network.example_inputs[0]


BLOCKS = (
    _convnext,
    _dcgan,
    _efficientnet,
    _llama,
    _mixer,
    _mobilenet_v3,
    _resnet3d,
    _resnext,
    _swin,
    _t5,
)


def _import(block: Callable[[], Any], target: Any) -> Any:
    """(imported, prepared module)."""
    import torch

    from tunefleet.compiler.frontends.torch_ import TorchReference, import_program
    from tunefleet.compiler.graph.pipeline import prepare
    from tunefleet.compiler.toolchain.host import to_tvm

    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        module, example = block()
        program = torch.export.export(module.eval(), (example,))
    reference = TorchReference(lambda: program)
    imported = import_program(
        program, reference, what="a block", name="block", source="pt2", digest="d"
    )
    return imported, prepare(imported.mod, to_tvm(target))


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.__name__.strip("_"))
def test_a_block_computes_what_torch_does(
    block: Callable[[], Any], target: Any, tmp_path: Path
) -> None:
    from tunefleet.artifacts.network import LoadedNetwork
    from tunefleet.compiler.code.executable import compile_network, save_network, worst_difference

    imported, module = _import(block, target)
    path = str(tmp_path / "block.so")
    save_network(compile_network(module, target, {}), path)
    expected = imported.reference(imported.example_inputs)
    actual = LoadedNetwork(path).run(imported.example_inputs)
    assert worst_difference(expected, actual) < 1e-4


@pytest.mark.parametrize(
    ("block", "most"), [(_convnext, 2), (_resnet3d, 2), (_dcgan, 2), (_resnext, 2)]
)
def test_few_transposes_are_left(block: Callable[[], Any], most: int, target: Any) -> None:
    from tunefleet.compiler.graph.tasks import extract_tasks

    tasks = extract_tasks(_import(block, target)[1], target)
    assert sum("transpose" in weighted.task.name for weighted in tasks) <= most
