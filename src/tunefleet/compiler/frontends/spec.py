"""Names and digests of networks, found without importing a framework.

A resumed job is recognised by these alone, before the seconds that TVM and torch take to import.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from tunefleet.core.precision import BF16, FLOAT16, FLOAT32, FLOATS, FP16, PRECISIONS
from tunefleet.core.printing import quoted
from tunefleet.core.target import TENSOR_CORES, CudaTarget, Target
from tunefleet.errors import InputError, JobError
from tunefleet.system.files import check_archive, check_regular
from tunefleet.system.parsing import parsed
from tunefleet.system.sandbox import is_confined
from tunefleet.zoo.registry import content_key
from tunefleet.zoo.spec import PREFIX, ZooSpec
from tunefleet.zoo.spec import parse as parse_zoo

ONNX_SUFFIX = ".onnx"
TORCH_SUFFIX = ".pt2"
TFLITE_SUFFIX = ".tflite"
KERAS_SUFFIX = ".keras"
#: What makes a folder a TensorFlow SavedModel.
SAVED_MODEL_FILE = "saved_model.pb"
#: What makes a folder a Hugging Face model, beside weights.
CONFIG_FILE = "config.json"
#: Says the size of images.
PREPROCESSOR_FILE = "preprocessor_config.json"
_WEIGHTS_SUFFIX = ".safetensors"
FILE_SUFFIXES = frozenset({ONNX_SUFFIX, TORCH_SUFFIX, TFLITE_SUFFIX, KERAS_SUFFIX})
_HDF5_SUFFIXES = frozenset({".h5", ".hdf5"})
_STATE_SUFFIXES = frozenset({".pt", ".pth", ".bin", ".ckpt", _WEIGHTS_SUFFIX})
_KINDS = (
    f"an {ONNX_SUFFIX}, {TORCH_SUFFIX}, {TFLITE_SUFFIX} or {KERAS_SUFFIX} file, "
    f"a SavedModel or Hugging Face folder or {PREFIX}NAME"
)
#: Where a copy lies, as errors name it, which may leave out the beginning of a long path; homes of
#: earlier versions have half as many digits.
_KEPT = re.compile(r"[^\s']*networks/[0-9a-f]{32}(?:[0-9a-f]{32})?/")
#: A file with its size, the time of its last change and its number.
_State = tuple[Path, int, int, int]


def is_zoo(spec: str | os.PathLike[str]) -> bool:
    """Whether `spec` asks for a network of the zoo."""
    return isinstance(spec, str) and spec.startswith(PREFIX)


def is_torch(spec: str | os.PathLike[str]) -> bool:
    """Whether a network is read, and what it computes is found, by PyTorch."""
    return is_zoo(spec) or os.fspath(spec).endswith(TORCH_SUFFIX) or is_huggingface(spec)


def is_saved_model(spec: str | os.PathLike[str]) -> bool:
    """Whether `spec` is a folder that TensorFlow saved a model into."""
    return os.path.isfile(os.path.join(spec, SAVED_MODEL_FILE))


def is_huggingface(spec: str | os.PathLike[str]) -> bool:
    """Whether `spec` is a folder with a model's configuration, as `save_pretrained` writes it."""
    return os.path.isfile(os.path.join(spec, CONFIG_FILE)) and not is_saved_model(spec)


def zoo_spec(spec: str | os.PathLike[str]) -> ZooSpec:
    """The specification behind ``zoo:...``; raises InputError."""
    return parse_zoo(os.fspath(spec))


def wanted_precision(spec: str, precision: str) -> str:
    """In what numbers a network is to be: as it is named, else `precision`. Raises InputError for
    a precision that is not known."""
    if precision not in PRECISIONS:
        raise InputError(
            f"there is no precision {shown(str(precision))}",
            cure=f"write {', '.join(PRECISIONS[:-1])} or {PRECISIONS[-1]}",
        )
    named = zoo_spec(spec).precision if is_zoo(spec) else FLOAT32
    return precision if named == FLOAT32 else named


def check_precision(precision: str, target: Target) -> None:
    """Raises InputError for a choice of `FLOATS` that a target does not have."""
    if not isinstance(target, CudaTarget):
        if precision == FP16:
            raise InputError(f"{FP16} is for GPUs", cure=f"use {BF16}")
        return
    if target.capability < TENSOR_CORES[FLOATS[precision]]:
        others = target.capability >= TENSOR_CORES[FLOAT16]
        raise InputError(
            f"{precision} needs a GPU whose tensor cores multiply {FLOATS[precision]}, which "
            f"{target.arch} has not",
            cure=f"use {FP16}" if others else "leave out --precision",
        )


def in_floats(spec: str) -> str:
    """What a network that is named with a precision is made of."""
    return str(zoo_spec(spec).in_floats) if is_zoo(spec) else spec


def source_path(spec: str | os.PathLike[str]) -> Path:
    """The readable, non-empty file or the model's folder that `spec` names; raises InputError."""
    path = Path(spec)
    suffix = path.suffix.lower()
    if suffix in _STATE_SUFFIXES:
        raise InputError(
            f"{shown(path)} holds weights without a graph",
            cure=f"export the module: torch.export.save(torch.export.export(...), "
            f"'{path.stem[:40]}{TORCH_SUFFIX}')",
        )
    if suffix in _HDF5_SUFFIXES:
        raise InputError(
            f"{shown(path)} is in Keras's old format, which may run code as it is read",
            cure=f"save the model with Keras 3: model.save({path.stem[:40] + KERAS_SUFFIX!r})",
        )
    if is_saved_model(path):
        _check_readable(path / SAVED_MODEL_FILE)
        return path
    if is_huggingface(path):
        _check_readable(path / CONFIG_FILE)
        _check_weights(path)
        return path
    # Path.is_dir would raise where a parent folder may not be read.
    if os.path.isdir(path):
        if _weights(path):
            raise InputError(
                f"{shown(path)} holds weights without {CONFIG_FILE}",
                cure="save the whole model with save_pretrained",
            )
        raise InputError(f"{shown(path)} is a directory, not a network", cure=f"give {_KINDS}")
    if suffix not in FILE_SUFFIXES:
        kind = f"the suffix {suffix[:20]!r} is unknown" if suffix else "it has no suffix"
        raise InputError(f"cannot tell what {shown(path)} is: {kind}", cure=f"give {_KINDS}")
    _check_readable(path)
    check_archive(path)
    return path


def network_name(spec: str | os.PathLike[str]) -> str:
    """A short name: the stem of the file, the name of the folder, or the zoo network with its
    changed parameters."""
    if is_zoo(spec):
        return zoo_spec(spec).label
    path = source_path(spec)
    return path.resolve().name if path.is_dir() else path.stem


def network_digest(spec: str | os.PathLike[str]) -> str:
    """SHA-256 of the file, or of the complete zoo specification and what it is built with.

    The digest of an ONNX file with external data covers the files beside it as well; that of a
    SavedModel its graph and its variables, that of a Hugging Face folder its configuration and
    all its weights.
    """
    if is_zoo(spec):
        return hashlib.sha256(content_key(zoo_spec(spec)).encode()).hexdigest()
    return _digests_of(_states(network_parts(source_path(spec))))[0]


def network_files(spec: str | os.PathLike[str]) -> tuple[str, dict[str, tuple[Path, str]]]:
    """The digest of a network's file or folder, and what a copy of it consists of: files by their
    paths in it, each with its SHA-256. The first begins with the name of the file or folder."""
    path = source_path(spec)
    parts = network_parts(path)
    content, digests = _digests_of(_states(parts))
    files = dict(zip(parts, digests, strict=True))
    if not path.is_dir():
        base = path.parent.resolve()
        places = [path.name, *(str(part.relative_to(base)) for part in parts[1:])]
        return content, dict(zip(places, files.items(), strict=True))
    for part in path.glob("*.json"):
        # What a link leads to may be no part of the model.
        if part.is_file() and not part.is_symlink() and part not in files:
            files[part] = _digests_of(_states([part]))[0]
    folder = path.resolve().name
    return content, {
        str(Path(folder, part.relative_to(path))): (part, own) for part, own in files.items()
    }


def _states(parts: Sequence[Path]) -> tuple[_State, ...]:
    states = [(part, part.stat()) for part in parts]
    return tuple((part, s.st_size, s.st_mtime_ns, s.st_ino) for part, s in states)


@lru_cache(maxsize=64)
def _digests_of(parts: tuple[_State, ...]) -> tuple[str, tuple[str, ...]]:
    """The SHA-256 of files together, and of each. They are read once as long as their sizes and
    times stay."""
    together, each = hashlib.sha256(), list[str]()
    for part, *_ in parts:
        own = hashlib.sha256() if each else together  # the same for the first one
        with part.open("rb") as file:
            while block := file.read(1 << 20):
                together.update(block)
                if own is not together:
                    own.update(block)
        each.append(own.hexdigest())
    return together.hexdigest(), tuple(each)


@contextmanager
def named_as_given() -> Iterator[None]:
    """Errors name a network that is kept by the name of its file, as its user knows it."""
    try:
        yield
    except (InputError, JobError) as error:
        what, cure = (_KEPT.sub("", text) for text in (error.what, error.cure))
        if what == error.what:
            raise
        raise type(error)(what, cure=cure) from error


def network_bytes(spec: str | os.PathLike[str]) -> int:
    """Bytes of the files of a network, which are little more than its weights; 0 for the zoo."""
    return (
        0 if is_zoo(spec) else sum(part.stat().st_size for part in network_parts(source_path(spec)))
    )


def network_places(spec: str | os.PathLike[str]) -> tuple[Path, ...]:
    """The files and folders that are read where a network is imported; none for the zoo."""
    if is_zoo(spec):
        return ()
    path = source_path(spec)
    # A folder has files that are no part of the network, and links to parts that lie elsewhere.
    return (*([path] if path.is_dir() else []), *network_parts(path))


def network_parts(path: Path) -> list[Path]:
    """The files that a network is made of."""
    if is_huggingface(path):
        index = sorted(path.glob(f"*{_WEIGHTS_SUFFIX}.index.json"))
        processor = [p for p in [path / PREPROCESSOR_FILE] if p.is_file()]
        return [path / CONFIG_FILE, *processor, *index, *_weights(path)]
    if path.is_dir():
        return [path / SAVED_MODEL_FILE, *sorted((path / "variables").glob("variables.*"))]
    return [path, *_external_data(path)]


def shown(path: str | os.PathLike[str]) -> str:
    """`path` short enough for a one-line message."""
    text = os.fspath(path)
    return text if len(text) <= 80 else "..." + text[-77:]


def listed(names: Sequence[str], most: int = 5) -> str:
    """The first `most` names, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def _weights(folder: Path) -> list[Path]:
    """The safetensors of a folder; none where it may not be read."""
    try:
        return sorted(p for p in folder.iterdir() if p.suffix == _WEIGHTS_SUFFIX)
    except OSError:
        return []


def _check_weights(folder: Path) -> None:
    weights = _weights(folder)
    if not weights:
        raise InputError(
            f"{shown(folder)} has a {CONFIG_FILE} but no {_WEIGHTS_SUFFIX}",
            cure="save the model with save_pretrained; weights as pickle are not read",
        )
    for path in weights:
        _check_readable(path)


def _check_readable(path: Path) -> None:
    check_regular(path)
    try:
        with path.open("rb") as file:
            first = file.read(1)
    except FileNotFoundError as exc:
        raise InputError(
            f"{shown(path)} does not exist", cure=f"check the path from {shown(Path.cwd())}"
        ) from exc
    except PermissionError as exc:
        raise InputError(
            f"{shown(path)} cannot be read: permission denied",
            cure=f"chmod +r {quoted(os.fspath(path))}",
        ) from exc
    except OSError as exc:
        raise InputError(
            f"{shown(path)} cannot be read: {exc.strerror}", cure="check the file and its disk"
        ) from exc
    if not first:
        raise InputError(f"{shown(path)} is empty", cure="export or copy the network again")


def _external_data(path: Path) -> list[Path]:
    """The files beside an ONNX file that hold its weights, if there are any."""
    if path.suffix.lower() != ONNX_SUFFIX:
        return []
    (state,) = _states([path])
    names = _locations(state)
    folder = path.parent.resolve()
    beside = [(folder / name).resolve() for name in names]
    return [file for file in beside if file.is_file() and folder in file.parents]


@lru_cache(maxsize=64)
def _locations(file: _State) -> Sequence[str]:
    """In which files an ONNX file says that it keeps weights."""
    path, size, *_ = file
    if not _mentions(path, b"location"):
        return []
    try:
        if is_confined():
            from tunefleet.compiler.frontends.onnx_locations import locations

            return locations(path)
        parser = "tunefleet.compiler.frontends.onnx_locations"
        with parsed(parser, [str(path)], what=shown(path), size=size, cure="") as stream:
            return list(json.loads(stream.read() or b"[]"))
    except InputError:
        # Loading the network says what is wrong; the file alone still identifies it.
        return []


def _mentions(path: Path, text: bytes) -> bool:
    """Whether `text` is in the file, as it is wherever ONNX keeps weights elsewhere."""
    before = b""
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            if text in before + block:
                return True
            before = block[-len(text) :]
    return False
