"""The generator of DCGAN (Radford et al. 2015, https://arxiv.org/abs/1511.06434)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tunefleet.zoo.blocks import finish
from tunefleet.zoo.spec import ZooSpec

_LATENT = 100
_WIDTH = 64


def _up(inputs: int, outputs: int, *, last: bool = False) -> list[nn.Module]:
    """Doubles height and width."""
    convolution = nn.ConvTranspose2d(inputs, outputs, 4, 2, 1, bias=False)
    return [convolution, nn.Tanh()] if last else [convolution, nn.BatchNorm2d(outputs), nn.ReLU()]


def dcgan(spec: ZooSpec) -> tuple[nn.Module, dict[str, Tensor]]:
    """Images of `size` from random vectors, by four transposed convolutions."""
    start, channels = spec["size"] // 16, 8 * _WIDTH
    module = nn.Sequential(
        nn.Linear(_LATENT, channels * start * start, bias=False),
        nn.Unflatten(1, (channels, start, start)),
        nn.BatchNorm2d(channels),
        nn.ReLU(),
        *_up(channels, channels // 2),
        *_up(channels // 2, channels // 4),
        *_up(channels // 4, channels // 8),
        *_up(channels // 8, 3, last=True),
    )
    finish(module, sample=torch.randn(8, _LATENT))
    return module, {"latent": torch.randn(spec["batch"], _LATENT)}
