"""Vision transformers (Dosovitskiy et al. 2020, https://arxiv.org/abs/2010.11929)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tunefleet.zoo.blocks import image_inputs
from tunefleet.zoo.spec import ZooSpec

_PATCH = 16


class _Layer(nn.Module):
    """Pre-norm attention and MLP, each with a shortcut."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.qkv = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        query, key, value = (
            part.reshape(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).chunk(3, dim=-1)
        )
        scores = query @ key.transpose(-2, -1) * (width // self.heads) ** -0.5
        y = (scores.softmax(-1) @ value).transpose(1, 2).reshape(batch, length, width)
        x = x + self.project(y)
        made: Tensor = x + self.mlp(self.norm2(x))
        return made


class _VisionTransformer(nn.Module):
    def __init__(self, size: int, depth: int, width: int, heads: int, classes: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, _PATCH, stride=_PATCH)
        self.token = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        positions = (size // _PATCH) ** 2 + 1
        self.positions = nn.Parameter(torch.randn(1, positions, width) * 0.02)
        self.layers = nn.Sequential(*(_Layer(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.positions
        y: Tensor = self.head(self.norm(self.layers(x))[:, 0])
        return y


def vit_tiny(spec: ZooSpec) -> tuple[nn.Module, dict[str, Tensor]]:
    """ViT-Ti/16: 12 layers, width 192, 3 heads (Touvron et al. 2020)."""
    module = _VisionTransformer(spec["size"], 12, 192, 3, spec["classes"])
    return module, image_inputs(spec)


def vit_base(spec: ZooSpec) -> tuple[nn.Module, dict[str, Tensor]]:
    """ViT-B/16: 12 layers, width 768, 12 heads."""
    module = _VisionTransformer(spec["size"], 12, 768, 12, spec["classes"])
    return module, image_inputs(spec)


def vit_small(spec: ZooSpec) -> tuple[nn.Module, dict[str, Tensor]]:
    """ViT-S/16: 12 layers, width 384, 6 heads."""
    module = _VisionTransformer(spec["size"], 12, 384, 6, spec["classes"])
    return module, image_inputs(spec)
