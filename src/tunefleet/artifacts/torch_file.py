"""Opens a `.pt2` file with its weights mapped from it, so that processes share them."""

from __future__ import annotations

import importlib
import json
import posixpath
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.export.pt2_archive import _package

from tunefleet.artifacts.torch_libraries import import_libraries
from tunefleet.artifacts.torch_safety import check_archive, without_pickle
from tunefleet.errors import InputError, foreign

if TYPE_CHECKING:
    from torch.export import ExportedProgram

#: Types of arguments and outputs that are defined in modules of these packages are imported with
#: the program; what else a file names is not: importing runs code.
_PACKAGES = ("transformers",)
#: How the records end that list weights and constants.
_WEIGHTS_OF = ("_weights_config.json", "_constants_config.json")


def open_program(path: Path, *, trust: bool = False) -> ExportedProgram:
    """The program in a file. Its weights are pages of the file, private where somebody writes.

    Raises InputError where opening it would run code of the file, unless that is to be trusted:
    torch reads it then, as it is.
    """
    if trust:
        archive: Any = None
        with suppress(RuntimeError):  # older formats are no archives of torch's
            archive = torch._C.PyTorchFileReader(str(path))
        if archive is not None:
            import_libraries(_Archive(archive), path)
        return torch.export.load(path)
    with foreign():
        reader: Any = _Archive(torch._C.PyTorchFileReader(str(path)))
    import_libraries(reader, path)
    check_archive(reader, path)
    _check_weights(reader, path)
    _register_types(reader)
    # Not by torch.export.load: it goes on to an older format, with pickle, where this one fails.
    with without_pickle(path), _mapped(path):
        programs: dict[str, ExportedProgram] = _package.load_pt2(path).exported_programs
    if "model" not in programs:
        held = ", ".join(programs) or "no program"
        raise InputError(f"{path} holds {held}, not one called model", cure="use torch.export.save")
    program = programs["model"]
    program._guards_code = []  # source of Python, which `module()` would compile and run
    return program


class _Archive:
    """torch's reader of an archive, in C++: what it raises, the file is to blame for."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any) -> Any:
            with foreign():
                return getattr(self._reader, name)(*args)

        return call


def _check_weights(reader: Any, path: Path) -> None:
    """torch takes zeros for a weight that is empty in the file."""
    for name in reader.get_all_records():
        if not name.endswith(_WEIGHTS_OF):
            continue
        try:
            empty = _empty_weight(reader, name)
        except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
            raise InputError(
                f"{path}: {name} is no list of weights", cure="export or copy it again"
            ) from error
        if empty:
            raise InputError(
                f"{path}: {empty} is empty, of a weight that is not", cure="export or copy it again"
            )


def _empty_weight(reader: Any, name: str) -> str:
    """The first record without bytes, of a weight that has elements; "" where there is none."""
    for each in json.loads(reader.get_record(name))["config"].values():
        record, tensor = f"{posixpath.dirname(name)}/{each['path_name']}", each["tensor_meta"]
        is_empty = reader.has_record(record) and reader.get_record_size(record) == 0
        if is_empty and tensor and 0 not in [extent["as_int"] for extent in tensor["sizes"]]:
            return record
    return ""


def _register_types(reader: Any) -> None:
    """Imports the modules that define the types of the program's arguments and outputs, where they
    are installed. torch only logs what it lacks of them."""
    names = [n for n in reader.get_all_records() if n.startswith("models/")]
    try:
        programs = [json.loads(reader.get_record(name)) for name in names]
        named = [name for program in programs for name in _types(program)]
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError):
        return  # no program: torch says what is wrong with it
    modules = {name.rpartition(".")[0] for name in named if name.partition(".")[0] in _PACKAGES}
    for module in sorted(modules):
        try:
            importlib.import_module(module)
        except ImportError:
            continue


def _types(program: Any) -> Iterator[str]:
    """Names of the types in the signatures of a program as it is saved."""
    calls = program["graph_module"]["module_call_graph"]
    for call in calls:
        signature = call.get("signature") or {}
        for key in ("in_spec", "out_spec"):
            if signature.get(key):
                yield from _names(json.loads(signature[key]))


def _names(tree: Any) -> Iterator[str]:
    if isinstance(tree, list):
        for each in tree:
            yield from _names(each)
    elif isinstance(tree, dict):
        if isinstance(tree.get("type"), str):
            yield tree["type"]
        yield from _names(tree.get("children_spec", []))


@contextmanager
def _mapped(path: Path) -> Iterator[None]:
    """Lets torch take weights from a mapping of the file where it would copy each to memory of its
    own. (`torch.load` can be asked to, `torch.export.load` cannot.)"""
    package: Any = _package
    original = package.PT2ArchiveReader

    def reader(source: Any) -> Any:
        opened = original(source)
        opened.archive_file = _MappedFile(opened.archive_file, path)
        return opened

    package.PT2ArchiveReader = reader
    try:
        yield
    finally:
        package.PT2ArchiveReader = original


class _MappedFile:
    """An archive's reader that gives out parts of one mapping of the file."""

    def __init__(self, reader: Any, path: Path) -> None:
        self._reader = reader
        self._whole = torch.UntypedStorage.from_file(str(path), False, path.stat().st_size)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    def get_storage_from_record(self, name: str, elements: int, dtype: torch.dtype) -> Any:
        with foreign():
            start = self._reader.get_record_offset(name)
        size = elements * dtype.itemsize
        if start % dtype.itemsize:
            with foreign():
                return self._reader.get_storage_from_record(name, elements, dtype)
        return torch.empty(0, dtype=dtype).set_(self._whole[start : start + size])
