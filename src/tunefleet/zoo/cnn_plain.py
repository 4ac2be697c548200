"""Networks without shortcuts: VGG, SqueezeNet 1.1 and a tiny one for tests."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tunefleet.zoo.blocks import conv_bn, finish, image_inputs
from tunefleet.zoo.spec import ZooSpec


def tiny_cnn(spec: ZooSpec) -> tuple[nn.Module, dict[str, Tensor]]:
    """Every kind of operator a small CNN has, in some 3,000 weights."""
    module = nn.Sequential(
        conv_bn(3, 16, 3, activation=nn.ReLU()),
        conv_bn(16, 16, 3, stride=2, groups=16, activation=nn.ReLU6()),
        conv_bn(16, 32, 1, activation=nn.ReLU()),
        nn.MaxPool2d(2),
        conv_bn(32, 32, 1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, spec["classes"]),
    )
    return finish(module, calibration_size=16), image_inputs(spec)


def _vgg(spec: ZooSpec, counts: tuple[int, ...]) -> tuple[nn.Module, dict[str, Tensor]]:
    layers: list[nn.Module] = []
    channels = 3
    for outputs, count in zip((64, 128, 256, 512, 512), counts, strict=True):
        for _ in range(count):
            layers += [nn.Conv2d(channels, outputs, 3, padding=1), nn.ReLU()]
            channels = outputs
        layers.append(nn.MaxPool2d(2))
    # Torchvision pools to 7x7 adaptively, which at 224 pixels does nothing.
    layers += [nn.AdaptiveAvgPool2d(7), nn.Flatten()]
    for inputs in (512 * 7 * 7, 4096):
        layers += [nn.Linear(inputs, 4096), nn.ReLU(), nn.Dropout()]
    layers.append(nn.Linear(4096, spec["classes"]))
    return finish(nn.Sequential(*layers)), image_inputs(spec)


def vgg11(spec: ZooSpec) -> tuple[nn.Module, dict[str, Tensor]]:
    """Simonyan and Zisserman 2014, configuration A (https://arxiv.org/abs/1409.1556)."""
    return _vgg(spec, (1, 1, 2, 2, 2))


def vgg16(spec: ZooSpec) -> tuple[nn.Module, dict[str, Tensor]]:
    """Configuration D of the same."""
    return _vgg(spec, (2, 2, 3, 3, 3))


class _Fire(nn.Module):
    def __init__(self, inputs: int, squeeze: int, expand: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(inputs, squeeze, 1)
        self.expand1 = nn.Conv2d(squeeze, expand, 1)
        self.expand3 = nn.Conv2d(squeeze, expand, 3, padding=1)
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.squeeze(x))
        return torch.cat([self.relu(self.expand1(x)), self.relu(self.expand3(x))], 1)


def squeezenet(spec: ZooSpec) -> tuple[nn.Module, dict[str, Tensor]]:
    """SqueezeNet 1.1 (Iandola et al. 2016, https://arxiv.org/abs/1602.07360)."""

    def pool() -> nn.Module:
        return nn.MaxPool2d(3, 2, ceil_mode=True)

    module = nn.Sequential(
        nn.Conv2d(3, 64, 3, stride=2),
        nn.ReLU(),
        pool(),
        _Fire(64, 16, 64),
        _Fire(128, 16, 64),
        pool(),
        _Fire(128, 32, 128),
        _Fire(256, 32, 128),
        pool(),
        _Fire(256, 48, 192),
        _Fire(384, 48, 192),
        _Fire(384, 64, 256),
        _Fire(512, 64, 256),
        nn.Dropout(),
        nn.Conv2d(512, spec["classes"], 1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )
    return finish(module), image_inputs(spec)
