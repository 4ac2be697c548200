"""What the convolutional networks share: blocks, inputs, initialisation, calibration."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tunefleet.zoo.spec import ZooSpec


def conv_bn(
    inputs: int,
    outputs: int,
    kernel: int | tuple[int, int],
    *,
    stride: int = 1,
    padding: int | tuple[int, int] | None = None,
    groups: int = 1,
    eps: float = 1e-5,
    activation: nn.Module | None = None,
) -> nn.Sequential:
    """Convolution without bias, batch norm and an activation; padding keeps the size if None."""
    if padding is None:
        height, width = (kernel, kernel) if isinstance(kernel, int) else kernel
        padding = (height // 2, width // 2)
    layers: list[nn.Module] = [
        nn.Conv2d(inputs, outputs, kernel, stride, padding, groups=groups, bias=False),
        nn.BatchNorm2d(outputs, eps=eps),
    ]
    return nn.Sequential(*layers, *([activation] if activation is not None else []))


class SqueezeExcite(nn.Module):
    """Scales each channel by a gate made of all channels' means (Hu et al. 2017)."""

    def __init__(
        self, channels: int, squeezed: int, activation: nn.Module, gate: nn.Module
    ) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(channels, squeezed, 1),
            activation,
            nn.Conv2d(squeezed, channels, 1),
            gate,
        )

    def forward(self, x: Tensor) -> Tensor:
        scaled: Tensor = x * self.body(x)
        return scaled


def image_inputs(spec: ZooSpec) -> dict[str, Tensor]:
    """One batch of NCHW images with normally distributed pixels."""
    return {"image": torch.randn(spec["batch"], 3, spec["size"], spec["size"])}


def finish(
    module: nn.Module, *, calibration_size: int = 96, sample: Tensor | None = None
) -> nn.Module:
    """Initialises `module` so that its outputs are of the order of one.

    `sample` calibrates networks that do not take images.

    Weights follow He et al. 2015 (https://arxiv.org/abs/1502.01852). Batch norms get random
    scales and offsets, and the statistics of one small random batch: with statistics that do not
    fit the weights, the activations of a deep network vanish, and comparing outputs shows nothing.
    """
    norms: list[nn.BatchNorm2d | nn.BatchNorm3d] = []
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d | nn.Conv3d | nn.ConvTranspose2d | nn.Linear):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            if layer.bias is not None:
                nn.init.uniform_(layer.bias, -0.1, 0.1)
        elif isinstance(layer, nn.BatchNorm2d | nn.BatchNorm3d):
            nn.init.uniform_(layer.weight, 0.5, 1.5)
            nn.init.uniform_(layer.bias, -0.5, 0.5)
            norms.append(layer)
    if norms:
        if sample is None:
            sample = torch.randn(4, 3, calibration_size, calibration_size)
        _calibrate(module, norms, sample)
    return module


def perturb_norms(module: nn.Module) -> nn.Module:
    """Gives layer norms scales and offsets of no particular network, in place of ones and zeros."""
    for layer in module.modules():
        if isinstance(layer, nn.LayerNorm):
            nn.init.uniform_(layer.weight, 0.5, 1.5)
            nn.init.uniform_(layer.bias, -0.1, 0.1)
    return module


def _calibrate(
    module: nn.Module, norms: list[nn.BatchNorm2d | nn.BatchNorm3d], sample: Tensor
) -> None:
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = None
        norm.reset_running_stats()
    # Only the norms train: dropout would disturb the statistics.
    module.eval()
    for norm in norms:
        norm.train()
    module(sample)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    module.eval()
