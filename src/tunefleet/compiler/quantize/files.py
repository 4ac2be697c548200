"""Caches quantised networks in folders named by the digest of their inputs."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec

from tunefleet.compiler.frontends.spec import (
    ONNX_SUFFIX,
    in_floats,
    is_zoo,
    network_digest,
    network_name,
    shown,
    source_path,
    zoo_spec,
)
from tunefleet.compiler.quantize.calibration import SampleInputs, content_of, samples_of
from tunefleet.compiler.toolchain.quiet import quiet
from tunefleet.core.ids import digest
from tunefleet.core.precision import INT8, Precision
from tunefleet.errors import InputError, InternalError
from tunefleet.system.packages import require
from tunefleet.system.scratch import scratch_folder
from tunefleet.zoo.spec import ZooSpec

#: The metadata key of a file's precision and losses.
METADATA = "tunefleet.precision"
#: A digest and the name of a file.
_FILE = re.compile(r"[0-9a-f]+/[^/\0]+")
#: The number of generated samples for a network of the zoo, which has no data.
_DRAWS = 8


def quantized_file(
    spec: str,
    data: Path | None,
    folder: Path,
    draft_file: Callable[[str, Path | None, Path, Path], str] | None = None,
) -> Path:
    """The int8 network as an ONNX file below `folder`. The file is created once per network, data
    and quantiser, by `draft_file`, which is `drafted` or calls it in another process. Raises as
    that does."""
    folder.mkdir(parents=True, exist_ok=True)
    with scratch_folder("quantized", folder) as scratch:
        name = (draft_file or drafted)(spec, data, folder, Path(scratch))
        file = folder / name
        draft = Path(scratch, name)
        # The process read an untrusted file: a path outside the folder is rejected.
        if not _FILE.fullmatch(name) or draft.is_symlink():
            raise InternalError(f"{name!r} is no quantised file")
        if draft.is_file():
            try:
                draft.parent.rename(file.parent)
            except OSError:
                if not file.is_file():  # otherwise another process was faster
                    raise
    return file


def drafted(spec: str, data: Path | None, folder: Path, draft: Path) -> str:
    """The path of an int8 network below `folder`, where it lies already, or else below `draft`.

    `data` are files of calibration inputs; networks of the zoo use their own seeded ones. Raises
    InputError for an unsuitable network or data, and SetupError if the quantiser is not installed.
    """
    what = spec if is_zoo(spec) else shown(spec)
    require(f"{what} in {INT8}", ("onnx", "onnxruntime"), "pip install tunefleet[onnx]")
    if not is_zoo(spec):
        if source_path(spec).suffix.lower() != ONNX_SUFFIX:
            raise InputError(
                f"{what}: {INT8} supports ONNX files and networks of the zoo only",
                cure="export it to ONNX",
            )
        if data is None:
            raise InputError(
                f"{what}: {INT8} needs calibration inputs", cure="give them: --calibrate DATA"
            )
    file = Path(_key(spec, data), f"{_name(spec)}{ONNX_SUFFIX}")
    if not (folder / file).is_file():
        (draft / file).parent.mkdir()
        with quiet():
            _make(spec, data, draft / file, what)
    return str(file)


@lru_cache(maxsize=1)
def _temporary() -> tempfile.TemporaryDirectory[str]:
    return scratch_folder("quantized")


def quantized_folder() -> Path:
    """The default folder, which exists as long as the process."""
    return Path(_temporary().name)


def precision_of(properties: dict[str, str]) -> Precision | None:
    """The precision in a file's metadata `properties`; None if tunefleet did not create it."""
    try:
        return msgspec.json.decode(properties.get(METADATA, ""), type=Precision)
    except (ValueError, msgspec.MsgspecError, RecursionError):
        return None


def _name(spec: str) -> str:
    return f"{network_name(in_floats(spec))}-{INT8}"


def _key(spec: str, data: Path | None) -> str:
    from tunefleet.compiler.quantize.recipe import RECIPE

    calibration = f"{_DRAWS} draws" if data is None else content_of(data)
    quantizer = metadata.version("onnxruntime")
    return digest([network_digest(in_floats(spec)), INT8, calibration, quantizer, RECIPE])


def _make(spec: str, data: Path | None, file: Path, what: str) -> None:
    import onnx

    from tunefleet.compiler.quantize.recipe import check_floats, inputs_of, quantize

    with scratch_folder("quantize") as folder:
        own: Sequence[SampleInputs] = ()
        source = Path(spec)
        if is_zoo(spec):
            source = Path(folder, "zoo.onnx")
            own = _exported(zoo_spec(spec).in_floats, source)
        model = onnx.load(source, load_external_data=False)
        check_floats(model, what)
        samples = list(own) if data is None else samples_of(data, inputs_of(model))
        precision = quantize(source, file, samples, what)
    written = onnx.load(file, load_external_data=False)
    onnx.helper.set_model_props(written, {METADATA: msgspec.json.encode(precision).decode()})
    file.write_bytes(written.SerializeToString())


def _exported(spec: ZooSpec, path: Path) -> list[SampleInputs]:
    """Writes a network of the zoo as an ONNX file and returns its calibration inputs: its seeded
    ones, and permutations of them."""
    import numpy as np
    import torch

    from tunefleet.zoo import build

    network = build(spec)
    # Via TorchScript, which needs no further package.
    torch.onnx.export(
        network.module,
        network.example_inputs,
        path,
        input_names=list(network.input_names),
        output_names=["output"],
        opset_version=17,
        dynamo=False,
    )
    arrays: dict[str, Any] = {
        name: tensor.numpy()
        for name, tensor in zip(network.input_names, network.example_inputs, strict=True)
    }
    generator = np.random.default_rng(0)
    return [
        {
            name: generator.permutation(array.ravel()).reshape(array.shape) if draw else array
            for name, array in arrays.items()
        }
        for draw in range(_DRAWS)
    ]
