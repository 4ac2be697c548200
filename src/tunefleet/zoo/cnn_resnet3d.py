"""ResNet-18 over video clips (Tran et al. 2017, https://arxiv.org/abs/1711.11248)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tunefleet.zoo.blocks import finish
from tunefleet.zoo.spec import ZooSpec

_FRAMES = 16
_Triple = tuple[int, int, int]


def _conv_bn(
    inputs: int,
    outputs: int,
    kernel: _Triple,
    stride: _Triple = (1, 1, 1),
    *,
    activation: nn.Module | None = None,
) -> nn.Sequential:
    padding = (kernel[0] // 2, kernel[1] // 2, kernel[2] // 2)
    return nn.Sequential(
        nn.Conv3d(inputs, outputs, kernel, stride, padding, bias=False),
        nn.BatchNorm3d(outputs),
        *([activation] if activation is not None else []),
    )


class _Basic(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        kernel, strides = (3, 3, 3), (stride, stride, stride)
        self.body = nn.Sequential(
            _conv_bn(inputs, width, kernel, strides, activation=nn.ReLU()),
            _conv_bn(width, width, kernel),
        )
        same = stride == 1 and inputs == width
        self.shortcut = nn.Identity() if same else _conv_bn(inputs, width, (1, 1, 1), strides)
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.relu(self.body(x) + self.shortcut(x))
        return y


def resnet3d18(spec: ZooSpec) -> tuple[nn.Module, dict[str, Tensor]]:
    """R3D-18 as in torchvision, on clips of 16 square frames."""
    layers: list[nn.Module] = [_conv_bn(3, 64, (3, 7, 7), (1, 2, 2), activation=nn.ReLU())]
    channels = 64
    for stage in range(4):
        width = 64 * 2**stage
        layers += [_Basic(channels, width, 2 if stage else 1), _Basic(width, width, 1)]
        channels = width
    layers += [nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(channels, spec["classes"])]
    module = finish(nn.Sequential(*layers), sample=torch.randn(2, 3, _FRAMES, 48, 48))
    clip = torch.randn(spec["batch"], 3, _FRAMES, spec["size"], spec["size"])
    return module, {"clip": clip}
