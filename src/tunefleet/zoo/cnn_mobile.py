"""Networks for small devices: MobileNetV2 and ShuffleNetV2, as in torchvision."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tunefleet.zoo.blocks import conv_bn, finish, image_inputs
from tunefleet.zoo.spec import ZooSpec


class _InvertedResidual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = inputs * expansion
        layers = [conv_bn(inputs, hidden, 1, activation=nn.ReLU6())] if expansion != 1 else []
        self.body = nn.Sequential(
            *layers,
            conv_bn(hidden, hidden, 3, stride=stride, groups=hidden, activation=nn.ReLU6()),
            conv_bn(hidden, outputs, 1),
        )
        self.shortcut = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x + self.body(x) if self.shortcut else self.body(x)
        return y


def mobilenet_v2(spec: ZooSpec) -> tuple[nn.Module, dict[str, Tensor]]:
    """Sandler et al. 2018, width 1.0 (https://arxiv.org/abs/1801.04381)."""
    layers: list[nn.Module] = [conv_bn(3, 32, 3, stride=2, activation=nn.ReLU6())]
    channels = 32
    for expansion, outputs, count, first_stride in (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ):
        for index in range(count):
            stride = 1 if index else first_stride
            layers.append(_InvertedResidual(channels, outputs, stride, expansion))
            channels = outputs
    layers += [
        conv_bn(channels, 1280, 1, activation=nn.ReLU6()),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(1280, spec["classes"]),
    ]
    return finish(nn.Sequential(*layers)), image_inputs(spec)


class _Shuffle(nn.Module):
    """A unit of ShuffleNetV2: transforms half of the channels, then interleaves both halves."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        half = outputs // 2
        self.stride = stride
        self.left = (
            nn.Sequential(
                conv_bn(inputs, inputs, 3, stride=stride, groups=inputs),
                conv_bn(inputs, half, 1, activation=nn.ReLU()),
            )
            if stride > 1
            else nn.Identity()
        )
        self.right = nn.Sequential(
            conv_bn(inputs if stride > 1 else half, half, 1, activation=nn.ReLU()),
            conv_bn(half, half, 3, stride=stride, groups=half),
            conv_bn(half, half, 1, activation=nn.ReLU()),
        )

    def forward(self, x: Tensor) -> Tensor:
        left, right = x.chunk(2, dim=1) if self.stride == 1 else (x, x)
        y = torch.cat((self.left(left), self.right(right)), dim=1)
        batch, channels, height, width = y.shape
        y = y.view(batch, 2, channels // 2, height, width).transpose(1, 2)
        return y.reshape(batch, channels, height, width)


def shufflenet_v2(spec: ZooSpec) -> tuple[nn.Module, dict[str, Tensor]]:
    """Ma et al. 2018, width 1.0 (https://arxiv.org/abs/1807.11164)."""
    layers: list[nn.Module] = [
        conv_bn(3, 24, 3, stride=2, activation=nn.ReLU()),
        nn.MaxPool2d(3, 2, 1),
    ]
    channels = 24
    for outputs, count in ((116, 4), (232, 8), (464, 4)):
        for index in range(count):
            layers.append(_Shuffle(channels, outputs, 1 if index else 2))
            channels = outputs
    layers += [
        conv_bn(channels, 1024, 1, activation=nn.ReLU()),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(1024, spec["classes"]),
    ]
    return finish(nn.Sequential(*layers)), image_inputs(spec)
