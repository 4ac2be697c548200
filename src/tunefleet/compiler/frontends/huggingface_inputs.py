"""What a Hugging Face model is called with, as its class and its configuration say."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tunefleet.compiler.frontends.free import FreeInput
from tunefleet.compiler.frontends.spec import PREPROCESSOR_FILE
from tunefleet.core.network import TensorSpec
from tunefleet.core.printing import quoted
from tunefleet.errors import InputError
from tunefleet.system.files import check_regular

#: Such a file has a few lines.
_MOST_BYTES = 1 << 24
_IDS = frozenset({"input_ids", "decoder_input_ids"})
_Extent = int | str


def inputs_of(model: Any, path: Path, what: str) -> tuple[list[FreeInput], dict[str, int]]:
    """The inputs of a model in the order of its arguments, and the sizes that its files know.

    Free dimensions are batch, sequence, decoder_sequence, height, width, samples and frames.
    Raises InputError for a kind of model whose inputs cannot be told.
    """
    config, takes = model.config, list(inspect.signature(model.forward).parameters)
    defaults: dict[str, int] = {}
    wanted: dict[str, tuple[tuple[_Extent, ...], str]] = {}
    main = model.main_input_name
    sees = _sees(config) is not None and "pixel_values" in takes
    if main == "input_ids":
        wanted["input_ids"] = (("batch", "sequence"), "int64")
        if "attention_mask" in takes:
            wanted["attention_mask"] = (("batch", "sequence"), "int64")
    elif main == "input_values":
        wanted["input_values"] = (_sound(config), "float32")
    elif main == "input_features":
        wanted["input_features"] = (_features(config, what), "float32")
    elif main != "pixel_values":
        raise InputError(
            f"{what}: {type(model).__name__} is called with {main}, whose shape nothing says",
            cure="export the module with torch.export and give the .pt2 file",
        )
    if main == "pixel_values" or (main == "input_ids" and sees):
        seen = _sees(config) or config
        wanted["pixel_values"] = (("batch", _channels(seen), "height", "width"), "float32")
        defaults |= _image_size(seen, path, what)
    if "decoder_input_ids" in takes and getattr(config, "is_encoder_decoder", False):
        wanted["decoder_input_ids"] = (("batch", "decoder_sequence"), "int64")
    ordered = sorted(wanted, key=takes.index)
    return [FreeInput(name, *wanted[name]) for name in ordered], defaults


def check_inputs(config: Any, dims: Mapping[str, int], what: str) -> None:
    """Raises InputError for a text longer than the positions that a model knows."""
    text = config.get_text_config()
    most = getattr(text, "max_position_embeddings", None)
    for name in ("sequence", "decoder_sequence"):
        length = dims.get(name, 0)
        if isinstance(most, int) and 0 < most < length:
            raise InputError(
                f"{what}: {name} is {length}, the model knows {most} positions",
                cure=f"--dim {quoted(f'{name}={most}')} or less",
            )


def examples(inputs: Sequence[TensorSpec], config: Any) -> tuple[np.ndarray, ...]:
    """Seeded tokens of the vocabulary that nothing hides, and standard normal numbers."""
    rng = np.random.default_rng(0)
    text = config.get_text_config()
    vocabulary = int(getattr(text, "vocab_size", 2))
    padding = getattr(text, "pad_token_id", None)
    arrays = []
    for spec in inputs:
        if spec.name in _IDS:
            ids = rng.integers(0, vocabulary, spec.shape)
            # Padding would be left out of positions and sums.
            arrays.append(np.where(ids == padding, (ids + 1) % vocabulary, ids))
        elif spec.dtype == "int64":
            arrays.append(np.ones(spec.shape, "int64"))
        else:
            arrays.append(rng.standard_normal(spec.shape).astype(spec.dtype))
    return tuple(arrays)


def _sees(config: Any) -> Any:
    """The configuration of the part that takes images beside text, if there is one."""
    vision = getattr(config, "vision_config", None)
    if vision is not None:
        return vision
    return config if hasattr(config, "image_size") and hasattr(config, "patch_size") else None


def _channels(config: Any) -> int:
    for name in ("num_channels", "in_channels", "in_chans"):
        value = getattr(config, name, None)
        if isinstance(value, int):
            return value
    return 3


def _image_size(config: Any, path: Path, what: str) -> dict[str, int]:
    """Height and width by the image processor's file, else by the configuration; nothing where
    they depend on the image."""
    processor = _processor(path / PREPROCESSOR_FILE, what)
    cropped = processor.get("crop_size") if processor.get("do_center_crop", True) else None
    for given in (cropped, processor.get("size"), getattr(config, "image_size", None)):
        size = _size(given)
        if size is not None:
            return {"height": size[0], "width": size[1]}
    return {}


def _processor(file: Path, what: str) -> Mapping[str, Any]:
    """What the file of an image processor says; nothing where there is none."""
    if not file.is_file():
        return {}
    check_regular(file, _MOST_BYTES)
    try:
        value = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{what}: its {file.name} is not JSON: {error}",
            cure="save the processor again with save_pretrained, or remove the file",
        ) from error
    return value if isinstance(value, dict) else {}


def _size(given: Any) -> tuple[int, int] | None:
    """Height and width; None for what is no size."""
    if isinstance(given, Mapping):
        if "height" in given and "width" in given:
            given = given["height"], given["width"]
        elif "longest_edge" not in given:
            given = given.get("shortest_edge")
    pair = given if isinstance(given, list | tuple) else (given, given)
    if len(pair) == 2 and all(isinstance(extent, int) and extent > 0 for extent in pair):
        return pair[0], pair[1]
    return None


def _sound(config: Any) -> tuple[_Extent, ...]:
    """Samples of a wave, or frames of a spectrogram whose number is fixed."""
    bins, frames = getattr(config, "num_mel_bins", None), getattr(config, "max_length", None)
    if isinstance(bins, int) and isinstance(frames, int) and hasattr(config, "frequency_stride"):
        return "batch", frames, bins
    return "batch", "samples"


def _features(config: Any, what: str) -> tuple[_Extent, ...]:
    """Mel features: (bins, frames) where positions are learned, (frames, bins) elsewhere."""
    bins, positions = getattr(config, "num_mel_bins", 0), getattr(config, "max_source_positions", 0)
    if bins and positions:
        return "batch", bins, 2 * positions
    bins = getattr(config, "input_feat_per_channel", 0) or getattr(
        config, "feature_projection_input_dim", 0
    )
    if bins:
        return "batch", "frames", bins
    raise InputError(
        f"{what}: nothing in its configuration says the shape of input_features",
        cure="export the module with torch.export and give the .pt2 file",
    )
