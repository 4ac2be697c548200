"""EfficientNet (Tan and Le 2019, https://arxiv.org/abs/1905.11946), as in torchvision."""

from __future__ import annotations

from torch import Tensor, nn

from tunefleet.zoo.blocks import SqueezeExcite, conv_bn, finish, image_inputs
from tunefleet.zoo.spec import ZooSpec


class _Inverted(nn.Module):
    def __init__(
        self, inputs: int, outputs: int, *, kernel: int, stride: int, expansion: int
    ) -> None:
        super().__init__()
        hidden = inputs * expansion
        expand = [conv_bn(inputs, hidden, 1, activation=nn.SiLU())] if expansion != 1 else []
        self.body = nn.Sequential(
            *expand,
            conv_bn(hidden, hidden, kernel, stride=stride, groups=hidden, activation=nn.SiLU()),
            SqueezeExcite(hidden, inputs // 4, nn.SiLU(), nn.Sigmoid()),
            conv_bn(hidden, outputs, 1),
        )
        self.shortcut = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x + self.body(x) if self.shortcut else self.body(x)
        return y


def efficientnet_b0(spec: ZooSpec) -> tuple[nn.Module, dict[str, Tensor]]:
    """The base network, 16 inverted residuals with squeeze and excite."""
    layers: list[nn.Module] = [conv_bn(3, 32, 3, stride=2, activation=nn.SiLU())]
    channels = 32
    for expansion, outputs, count, first_stride, kernel in (
        (1, 16, 1, 1, 3),
        (6, 24, 2, 2, 3),
        (6, 40, 2, 2, 5),
        (6, 80, 3, 2, 3),
        (6, 112, 3, 1, 5),
        (6, 192, 4, 2, 5),
        (6, 320, 1, 1, 3),
    ):
        for index in range(count):
            stride = 1 if index else first_stride
            layers.append(
                _Inverted(channels, outputs, kernel=kernel, stride=stride, expansion=expansion)
            )
            channels = outputs
    layers += [
        conv_bn(channels, 1280, 1, activation=nn.SiLU()),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(1280, spec["classes"]),
    ]
    return finish(nn.Sequential(*layers)), image_inputs(spec)
