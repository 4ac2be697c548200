"""Residual networks (He et al. 2015, https://arxiv.org/abs/1512.03385), as in torchvision."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from tunefleet.zoo.blocks import conv_bn, finish, image_inputs
from tunefleet.zoo.spec import ZooSpec

#: Input channels, planes of the stage and stride -> a residual block.
MakeBlock = Callable[[int, int, int], nn.Module]


class _Residual(nn.Module):
    """`body` plus a shortcut, which is a 1x1 convolution where the shape changes."""

    def __init__(self, body: nn.Module, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = body
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else conv_bn(inputs, outputs, 1, stride=stride)
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.relu(self.body(x) + self.shortcut(x))
        return y


def _basic(inputs: int, width: int, stride: int) -> nn.Module:
    body = nn.Sequential(
        conv_bn(inputs, width, 3, stride=stride, activation=nn.ReLU()),
        conv_bn(width, width, 3),
    )
    return _Residual(body, inputs, width, stride)


def _bottleneck(groups: int = 1, group_width: int = 64) -> MakeBlock:
    """Strides in the 3x3 convolution, as torchvision does ("ResNet v1.5")."""

    def block(inputs: int, planes: int, stride: int) -> nn.Module:
        inner = planes * group_width // 64 * groups
        body = nn.Sequential(
            conv_bn(inputs, inner, 1, activation=nn.ReLU()),
            conv_bn(inner, inner, 3, stride=stride, groups=groups, activation=nn.ReLU()),
            conv_bn(inner, 4 * planes, 1),
        )
        return _Residual(body, inputs, 4 * planes, stride)

    return block


def _resnet(
    spec: ZooSpec, depths: tuple[int, ...], expansion: int, block: MakeBlock
) -> tuple[nn.Module, dict[str, Tensor]]:
    layers: list[nn.Module] = [
        conv_bn(3, 64, 7, stride=2, activation=nn.ReLU()),
        nn.MaxPool2d(3, 2, 1),
    ]
    channels = 64
    for stage, depth in enumerate(depths):
        width = 64 * 2**stage
        for index in range(depth):
            stride = 2 if stage and not index else 1
            layers.append(block(channels, width, stride))
            channels = width * expansion
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, spec["classes"])]
    return finish(nn.Sequential(*layers)), image_inputs(spec)


def resnet18(spec: ZooSpec) -> tuple[nn.Module, dict[str, Tensor]]:
    """18 layers of basic blocks."""
    return _resnet(spec, (2, 2, 2, 2), 1, _basic)


def resnet34(spec: ZooSpec) -> tuple[nn.Module, dict[str, Tensor]]:
    """34 layers of basic blocks."""
    return _resnet(spec, (3, 4, 6, 3), 1, _basic)


def resnet50(spec: ZooSpec) -> tuple[nn.Module, dict[str, Tensor]]:
    """50 layers of bottleneck blocks."""
    return _resnet(spec, (3, 4, 6, 3), 4, _bottleneck())


def resnet101(spec: ZooSpec) -> tuple[nn.Module, dict[str, Tensor]]:
    """101 layers of bottleneck blocks."""
    return _resnet(spec, (3, 4, 23, 3), 4, _bottleneck())


def wide_resnet50_2(spec: ZooSpec) -> tuple[nn.Module, dict[str, Tensor]]:
    """Bottlenecks twice as wide (Zagoruyko and Komodakis, https://arxiv.org/abs/1605.07146)."""
    return _resnet(spec, (3, 4, 6, 3), 4, _bottleneck(group_width=128))


def resnext50_32x4d(spec: ZooSpec) -> tuple[nn.Module, dict[str, Tensor]]:
    """Grouped 3x3 convolutions, 32 groups (Xie et al. 2016, https://arxiv.org/abs/1611.05431)."""
    return _resnet(spec, (3, 4, 6, 3), 4, _bottleneck(groups=32, group_width=4))
