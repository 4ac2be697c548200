"""Swin transformers (Liu et al. 2021, https://arxiv.org/abs/2103.14030), as in torchvision."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tunefleet.zoo.blocks import image_inputs, perturb_norms
from tunefleet.zoo.spec import ZooSpec

_WINDOW = 7
_HEAD = 32


def _relative_positions() -> Tensor:
    """For each pair of pixels of a window, the row of the table of biases."""
    axis = torch.arange(_WINDOW)
    points = torch.stack(torch.meshgrid(axis, axis, indexing="ij")).flatten(1)
    apart = points[:, :, None] - points[:, None, :] + _WINDOW - 1
    return (apart[0] * (2 * _WINDOW - 1) + apart[1]).flatten()


def _shift_mask(side: int, shift: int) -> Tensor:
    """Hides from each other what lies on two edges of the image; (windows, pixels, pixels)."""
    band = (torch.arange(side) >= side - _WINDOW).int() + (torch.arange(side) >= side - shift).int()
    region = band[:, None] * 3 + band[None, :]
    count = side // _WINDOW
    windows = region.view(count, _WINDOW, count, _WINDOW).transpose(1, 2).reshape(count**2, -1)
    return torch.where(windows[:, :, None] == windows[:, None, :], 0.0, -100.0)


class _WindowAttention(nn.Module):
    """Attention within windows of 7x7; `side` is that of the image, a multiple of 7."""

    positions: Tensor
    mask: Tensor

    def __init__(self, width: int, side: int, shift: int) -> None:
        super().__init__()
        self.side, self.shift = side, shift
        self.heads, self.count = width // _HEAD, side // _WINDOW
        self.qkv = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        table = (2 * _WINDOW - 1) ** 2
        self.biases = nn.Parameter(torch.randn(table, self.heads) * 0.5)
        self.register_buffer("positions", _relative_positions(), persistent=False)
        if shift:
            self.register_buffer("mask", _shift_mask(side, shift), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, side, _, width = x.shape
        count, pixels = self.count, _WINDOW**2
        if self.shift:
            x = torch.roll(x, (-self.shift, -self.shift), (1, 2))
        x = x.view(batch, count, _WINDOW, count, _WINDOW, width).transpose(2, 3)
        x = x.reshape(batch * count**2, pixels, width)
        qkv = self.qkv(x).reshape(-1, pixels, 3, self.heads, _HEAD).permute(2, 0, 3, 1, 4)
        scores = qkv[0] * _HEAD**-0.5 @ qkv[1].transpose(-2, -1)
        scores = scores + self._bias(batch)
        x = (scores.softmax(-1) @ qkv[2]).transpose(1, 2).reshape(-1, pixels, width)
        x = self.project(x).view(batch, count, count, _WINDOW, _WINDOW, width)
        x = x.transpose(2, 3).reshape(batch, side, side, width)
        return torch.roll(x, (self.shift, self.shift), (1, 2)) if self.shift else x

    def _bias(self, batch: int) -> Tensor:
        pixels = _WINDOW**2
        bias = self.biases[self.positions].view(1, pixels, pixels, self.heads).permute(0, 3, 1, 2)
        if not self.shift:
            return bias
        # One sum per window: a constant of the network, so that scores are added to once.
        return (bias + self.mask[:, None]).repeat(batch, 1, 1, 1)


class _Block(nn.Module):
    def __init__(self, width: int, side: int, shift: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = _WindowAttention(width, side, shift)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        y: Tensor = x + self.mlp(self.norm2(x))
        return y


class _Merge(nn.Module):
    """Joins the channels of 2x2 neighbours and halves them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4 * width)
        self.reduce = nn.Linear(4 * width, 2 * width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        corners = [x[:, row::2, column::2] for column in (0, 1) for row in (0, 1)]
        merged: Tensor = self.reduce(self.norm(torch.cat(corners, -1)))
        return merged


class _Swin(nn.Module):
    def __init__(self, size: int, width: int, depths: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, 4)
        layers: list[nn.Module] = [nn.LayerNorm(width)]
        side = size // 4
        for stage, depth in enumerate(depths):
            if stage:
                layers.append(_Merge(width))
                width, side = 2 * width, side // 2
            # A window as large as the image has no neighbour to shift into.
            shift = _WINDOW // 2 if side > _WINDOW else 0
            layers += [_Block(width, side, shift * (index % 2)) for index in range(depth)]
        self.layers = nn.Sequential(*layers, nn.LayerNorm(width))
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.layers(self.patches(x).permute(0, 2, 3, 1)).mean((1, 2)))
        return logits


def swin_tiny(spec: ZooSpec) -> tuple[nn.Module, dict[str, Tensor]]:
    """Swin-T: stages of 2, 2, 6 and 2 blocks, width 96 to 768, for sizes in steps of 224."""
    module = _Swin(spec["size"], 96, (2, 2, 6, 2), spec["classes"])
    return perturb_norms(module), image_inputs(spec)
