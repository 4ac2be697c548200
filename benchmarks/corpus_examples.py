"""What transformers' models are called with, and weights that let every layer matter."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from corpus import Example

#: Sizes of the example inputs of texts; vocabularies have at least `VOCABULARY` entries.
LENGTH = 24
VOCABULARY = 500


class _Tensors(nn.Module):
    """A model whose outputs are a tuple of tensors."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def outputs(self, **inputs: Tensor) -> tuple[Tensor, ...]:
        found = self.model(**inputs)
        leaves = found.values() if isinstance(found, Mapping) else (found,)
        return tuple(leaf for leaf in leaves if isinstance(leaf, Tensor))


class _Text(_Tensors):
    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, ...]:
        return self.outputs(input_ids=input_ids, attention_mask=attention_mask)


class _Ids(_Tensors):
    def forward(self, input_ids: Tensor) -> tuple[Tensor, ...]:
        return self.outputs(input_ids=input_ids)


class _Translated(_Tensors):
    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, decoder_input_ids: Tensor
    ) -> tuple[Tensor, ...]:
        return self.outputs(
            input_ids=input_ids,
            attention_mask=attention_mask,
            decoder_input_ids=decoder_input_ids,
        )


class _Image(_Tensors):
    def forward(self, pixel_values: Tensor) -> tuple[Tensor, ...]:
        return self.outputs(pixel_values=pixel_values)


class _Wave(_Tensors):
    def forward(self, input_values: Tensor) -> tuple[Tensor, ...]:
        return self.outputs(input_values=input_values)


class _Transcribed(_Tensors):
    def forward(self, input_features: Tensor, decoder_input_ids: Tensor) -> tuple[Tensor, ...]:
        return self.outputs(input_features=input_features, decoder_input_ids=decoder_input_ids)


class _ImageAndText(_Tensors):
    def forward(
        self, input_ids: Tensor, pixel_values: Tensor, attention_mask: Tensor
    ) -> tuple[Tensor, ...]:
        return self.outputs(
            input_ids=input_ids, pixel_values=pixel_values, attention_mask=attention_mask
        )


def seeded(model: nn.Module) -> nn.Module:
    """Draws weights such that every layer matters: initialisers are made for training and for
    large widths, and leave small networks close to their embeddings, or layers at zero."""
    generator = torch.Generator().manual_seed(0)

    def noise(like: Tensor) -> Tensor:
        return torch.randn(like.shape, generator=generator).to(like.dtype)

    with torch.no_grad():
        for parameter in model.parameters():
            spread = float(parameter.std()) if parameter.numel() > 1 else 0.0
            if parameter.dim() > 1 and spread < 0.1:
                fan_in = parameter[0].numel() if parameter.dim() != 3 else parameter.shape[-1]
                parameter.copy_(noise(parameter) / math.sqrt(fan_in))
            elif parameter.dim() == 1 and spread == 0.0:
                centre = float(parameter.mean())
                centre = 0.5 if 0 < abs(centre) < 0.1 else centre
                parameter.copy_(centre + 0.1 * noise(parameter))
    return model.eval()


def _ids(*shape: int) -> Tensor:
    return torch.randint(3, VOCABULARY, shape, generator=torch.Generator().manual_seed(1))


def _noise(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


_TEXT_AXES = {0: "batch", 1: "sequence"}


def text(model: Any, length: int = LENGTH) -> Example:
    ids = _ids(2, length)
    axes = {"input_ids": _TEXT_AXES, "attention_mask": _TEXT_AXES}
    return Example(_Text(model), (ids, torch.ones_like(ids)), tuple(axes), axes)


def ids_only(model: Any, length: int = LENGTH) -> Example:
    return Example(_Ids(model), (_ids(2, length),), ("input_ids",), {"input_ids": _TEXT_AXES})


def translated(model: Any) -> Example:
    ids = _ids(2, LENGTH)
    axes = {
        "input_ids": _TEXT_AXES,
        "attention_mask": _TEXT_AXES,
        "decoder_input_ids": {0: "batch", 1: "decoder_sequence"},
    }
    inputs = (ids, torch.ones_like(ids), _ids(2, LENGTH // 2))
    return Example(_Translated(model), inputs, tuple(axes), axes)


def image(model: Any, size: int = 64) -> Example:
    axes = {"pixel_values": {0: "batch"}}
    return Example(_Image(model), (_noise(2, 3, size, size),), tuple(axes), axes)


def wave(model: Any) -> Example:
    axes = {"input_values": {0: "batch"}}
    return Example(_Wave(model), (_noise(2, 4000),), tuple(axes), axes)


def spectrum(model: Any) -> Example:
    axes = {"input_values": {0: "batch"}}
    return Example(_Wave(model), (_noise(2, 64, 32),), tuple(axes), axes)


def transcribed(model: Any, mels: int = 16, frames: int = 64) -> Example:
    features = _noise(2, mels, frames)
    axes = {
        "input_features": {0: "batch"},
        "decoder_input_ids": {0: "batch", 1: "decoder_sequence"},
    }
    return Example(_Transcribed(model), (features, _ids(2, 8)), tuple(axes), axes)


def image_and_text(model: Any, length: int = 16) -> Example:
    ids = _ids(2, length)
    axes = {
        "input_ids": _TEXT_AXES,
        "pixel_values": {0: "batch"},
        "attention_mask": _TEXT_AXES,
    }
    inputs = (ids, _noise(2, 3, 64, 64), torch.ones_like(ids))
    return Example(_ImageAndText(model), inputs, tuple(axes), axes)
