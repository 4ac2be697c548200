"""MobileNetV3 (Howard et al. 2019, https://arxiv.org/abs/1905.02244), as in torchvision."""

from __future__ import annotations

from torch import Tensor, nn

from tunefleet.zoo.blocks import SqueezeExcite, conv_bn, finish, image_inputs
from tunefleet.zoo.spec import ZooSpec

_EPS = 1e-3

# Kernel, expanded and output channels, squeeze and excite, hardswish, stride.
_Row = tuple[int, int, int, bool, bool, int]
_LARGE: tuple[_Row, ...] = (
    (3, 16, 16, False, False, 1),
    (3, 64, 24, False, False, 2),
    (3, 72, 24, False, False, 1),
    (5, 72, 40, True, False, 2),
    (5, 120, 40, True, False, 1),
    (5, 120, 40, True, False, 1),
    (3, 240, 80, False, True, 2),
    (3, 200, 80, False, True, 1),
    (3, 184, 80, False, True, 1),
    (3, 184, 80, False, True, 1),
    (3, 480, 112, True, True, 1),
    (3, 672, 112, True, True, 1),
    (5, 672, 160, True, True, 2),
    (5, 960, 160, True, True, 1),
    (5, 960, 160, True, True, 1),
)
_SMALL: tuple[_Row, ...] = (
    (3, 16, 16, True, False, 2),
    (3, 72, 24, False, False, 2),
    (3, 88, 24, False, False, 1),
    (5, 96, 40, True, True, 2),
    (5, 240, 40, True, True, 1),
    (5, 240, 40, True, True, 1),
    (5, 120, 48, True, True, 1),
    (5, 144, 48, True, True, 1),
    (5, 288, 96, True, True, 2),
    (5, 576, 96, True, True, 1),
    (5, 576, 96, True, True, 1),
)


def _multiple_of_8(channels: float) -> int:
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded


class _Inverted(nn.Module):
    def __init__(self, inputs: int, row: _Row) -> None:
        super().__init__()
        kernel, hidden, outputs, squeeze, swish, stride = row
        activation = nn.Hardswish if swish else nn.ReLU
        layers: list[nn.Module] = []
        if hidden != inputs:
            layers.append(conv_bn(inputs, hidden, 1, eps=_EPS, activation=activation()))
        layers.append(
            conv_bn(
                hidden,
                hidden,
                kernel,
                stride=stride,
                groups=hidden,
                eps=_EPS,
                activation=activation(),
            )
        )
        if squeeze:
            squeezed = _multiple_of_8(hidden / 4)
            layers.append(SqueezeExcite(hidden, squeezed, nn.ReLU(), nn.Hardsigmoid()))
        layers.append(conv_bn(hidden, outputs, 1, eps=_EPS))
        self.body = nn.Sequential(*layers)
        self.shortcut = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x + self.body(x) if self.shortcut else self.body(x)
        return y


def _mobilenet_v3(
    spec: ZooSpec, rows: tuple[_Row, ...], head: int
) -> tuple[nn.Module, dict[str, Tensor]]:
    layers: list[nn.Module] = [conv_bn(3, 16, 3, stride=2, eps=_EPS, activation=nn.Hardswish())]
    channels = 16
    for row in rows:
        layers.append(_Inverted(channels, row))
        channels = row[2]
    layers += [
        conv_bn(channels, 6 * channels, 1, eps=_EPS, activation=nn.Hardswish()),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(6 * channels, head),
        nn.Hardswish(),
        nn.Dropout(0.2),
        nn.Linear(head, spec["classes"]),
    ]
    return finish(nn.Sequential(*layers)), image_inputs(spec)


def mobilenet_v3_large(spec: ZooSpec) -> tuple[nn.Module, dict[str, Tensor]]:
    """15 inverted residuals with hardswish, some with squeeze and excite."""
    return _mobilenet_v3(spec, _LARGE, 1280)


def mobilenet_v3_small(spec: ZooSpec) -> tuple[nn.Module, dict[str, Tensor]]:
    """11 inverted residuals, most with 5x5 kernels."""
    return _mobilenet_v3(spec, _SMALL, 1024)
