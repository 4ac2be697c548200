"""DenseNet-121 (Huang et al. 2016, https://arxiv.org/abs/1608.06993), as in torchvision."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tunefleet.zoo.blocks import finish, image_inputs
from tunefleet.zoo.spec import ZooSpec

_GROWTH = 32


def _norm_conv(inputs: int, outputs: int, kernel: int) -> list[nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False)
    return [nn.BatchNorm2d(inputs), nn.ReLU(), convolution]


class _Dense(nn.Module):
    """A layer that adds its outputs to its inputs as further channels."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *_norm_conv(inputs, 4 * _GROWTH, 1), *_norm_conv(4 * _GROWTH, _GROWTH, 3)
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.body(x)], 1)


def densenet121(spec: ZooSpec) -> tuple[nn.Module, dict[str, Tensor]]:
    """121 layers, growth rate 32."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
    ]
    channels = 64
    depths = (6, 12, 24, 16)
    for stage, depth in enumerate(depths):
        for _ in range(depth):
            layers.append(_Dense(channels))
            channels += _GROWTH
        if stage < len(depths) - 1:
            layers += [*_norm_conv(channels, channels // 2, 1), nn.AvgPool2d(2)]
            channels //= 2
    layers += [
        nn.BatchNorm2d(channels),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(channels, spec["classes"]),
    ]
    return finish(nn.Sequential(*layers)), image_inputs(spec)
