"""Inception v3 (Szegedy et al. 2015, https://arxiv.org/abs/1512.00567), as in torchvision.

Without the auxiliary head, which inference does not use.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tunefleet.zoo.blocks import conv_bn, finish, image_inputs
from tunefleet.zoo.spec import ZooSpec


def _conv(
    inputs: int,
    outputs: int,
    kernel: int | tuple[int, int],
    *,
    stride: int = 1,
    padding: int | tuple[int, int] | None = None,
) -> nn.Sequential:
    return conv_bn(
        inputs,
        outputs,
        kernel,
        stride=stride,
        padding=padding,
        eps=1e-3,
        activation=nn.ReLU(),
    )


class _Branches(nn.Module):
    """Runs each branch on the input and joins their channels."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], 1)


def _pooled(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.AvgPool2d(3, 1, 1), _conv(inputs, outputs, 1))


def _block_a(inputs: int, pooled: int) -> nn.Module:
    return _Branches(
        _conv(inputs, 64, 1),
        nn.Sequential(_conv(inputs, 48, 1), _conv(48, 64, 5)),
        nn.Sequential(_conv(inputs, 64, 1), _conv(64, 96, 3), _conv(96, 96, 3)),
        _pooled(inputs, pooled),
    )


def _block_b(inputs: int) -> nn.Module:
    return _Branches(
        _conv(inputs, 384, 3, stride=2, padding=0),
        nn.Sequential(
            _conv(inputs, 64, 1), _conv(64, 96, 3), _conv(96, 96, 3, stride=2, padding=0)
        ),
        nn.MaxPool2d(3, 2),
    )


def _block_c(width: int) -> nn.Module:
    row, column = (1, 7), (7, 1)
    return _Branches(
        _conv(768, 192, 1),
        nn.Sequential(_conv(768, width, 1), _conv(width, width, row), _conv(width, 192, column)),
        nn.Sequential(
            _conv(768, width, 1),
            _conv(width, width, column),
            _conv(width, width, row),
            _conv(width, width, column),
            _conv(width, 192, row),
        ),
        _pooled(768, 192),
    )


def _block_d() -> nn.Module:
    return _Branches(
        nn.Sequential(_conv(768, 192, 1), _conv(192, 320, 3, stride=2, padding=0)),
        nn.Sequential(
            _conv(768, 192, 1),
            _conv(192, 192, (1, 7)),
            _conv(192, 192, (7, 1)),
            _conv(192, 192, 3, stride=2, padding=0),
        ),
        nn.MaxPool2d(3, 2),
    )


def _block_e(inputs: int) -> nn.Module:
    def fork() -> nn.Module:
        return _Branches(_conv(384, 384, (1, 3)), _conv(384, 384, (3, 1)))

    return _Branches(
        _conv(inputs, 320, 1),
        nn.Sequential(_conv(inputs, 384, 1), fork()),
        nn.Sequential(_conv(inputs, 448, 1), _conv(448, 384, 3), fork()),
        _pooled(inputs, 192),
    )


def inception_v3(spec: ZooSpec) -> tuple[nn.Module, dict[str, Tensor]]:
    """48 layers; made for images of 299 pixels."""
    module = nn.Sequential(
        _conv(3, 32, 3, stride=2, padding=0),
        _conv(32, 32, 3, padding=0),
        _conv(32, 64, 3),
        nn.MaxPool2d(3, 2),
        _conv(64, 80, 1),
        _conv(80, 192, 3, padding=0),
        nn.MaxPool2d(3, 2),
        _block_a(192, 32),
        _block_a(256, 64),
        _block_a(288, 64),
        _block_b(288),
        _block_c(128),
        _block_c(160),
        _block_c(160),
        _block_c(192),
        _block_d(),
        _block_e(1280),
        _block_e(2048),
        nn.AdaptiveAvgPool2d(1),
        nn.Dropout(),
        nn.Flatten(),
        nn.Linear(2048, spec["classes"]),
    )
    return finish(module, calibration_size=139), image_inputs(spec)
