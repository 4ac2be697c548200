"""ConvNeXt (Liu et al. 2022, https://arxiv.org/abs/2201.03545)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tunefleet.zoo.blocks import image_inputs, perturb_norms
from tunefleet.zoo.spec import ZooSpec

_EPS = 1e-6


class _Norm(nn.LayerNorm):
    """Layer norm over the channels of an NCHW tensor."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class _Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.mlp = nn.Sequential(
            nn.LayerNorm(width, eps=_EPS),
            nn.Linear(width, 4 * width),
            nn.GELU(),
            nn.Linear(4 * width, width),
        )
        # Starts at 1e-6 before training, which would hide the block from a comparison.
        self.scale = nn.Parameter(torch.empty(width).uniform_(0.2, 0.4))

    def forward(self, x: Tensor) -> Tensor:
        y = self.mlp(self.depthwise(x).permute(0, 2, 3, 1)) * self.scale
        shortcut: Tensor = x + y.permute(0, 3, 1, 2)
        return shortcut


def convnext_tiny(spec: ZooSpec) -> tuple[nn.Module, dict[str, Tensor]]:
    """Stages of 3, 3, 9 and 3 blocks, width 96 to 768."""
    widths, depths = (96, 192, 384, 768), (3, 3, 9, 3)
    layers: list[nn.Module] = [nn.Conv2d(3, widths[0], 4, 4), _Norm(widths[0], eps=_EPS)]
    for stage, (width, depth) in enumerate(zip(widths, depths, strict=True)):
        if stage:
            before = widths[stage - 1]
            layers += [_Norm(before, eps=_EPS), nn.Conv2d(before, width, 2, 2)]
        layers += [_Block(width) for _ in range(depth)]
    layers += [
        nn.AdaptiveAvgPool2d(1),
        _Norm(widths[-1], eps=_EPS),
        nn.Flatten(),
        nn.Linear(widths[-1], spec["classes"]),
    ]
    return perturb_norms(nn.Sequential(*layers)), image_inputs(spec)
