"""MLP-Mixer (Tolstikhin et al. 2021, https://arxiv.org/abs/2105.01601)."""

from __future__ import annotations

from torch import Tensor, nn

from tunefleet.zoo.blocks import image_inputs, perturb_norms
from tunefleet.zoo.spec import ZooSpec

_PATCH = 16


def _mlp(width: int, hidden: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))


class _Layer(nn.Module):
    """Mixes the patches of each channel, then the channels of each patch."""

    def __init__(self, patches: int, width: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.across = _mlp(patches, width // 2)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.within = _mlp(width, 4 * width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.across(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        mixed: Tensor = x + self.within(self.norm2(x))
        return mixed


class _Mixer(nn.Module):
    def __init__(self, size: int, depth: int, width: int, classes: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, _PATCH, stride=_PATCH)
        patches = (size // _PATCH) ** 2
        self.layers = nn.Sequential(*(_Layer(patches, width) for _ in range(depth)))
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        logits: Tensor = self.head(self.norm(self.layers(x)).mean(1))
        return logits


def mixer_small(spec: ZooSpec) -> tuple[nn.Module, dict[str, Tensor]]:
    """Mixer-S/16: 8 layers, width 512."""
    module = _Mixer(spec["size"], 8, 512, spec["classes"])
    return perturb_norms(module), image_inputs(spec)
