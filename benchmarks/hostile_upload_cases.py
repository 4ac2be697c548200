"""Hostile uploads: archives and names made here, networks of the cases of `hostile.py`."""

from __future__ import annotations

import io
import stat
import struct
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hostile_folders
import hostile_networks
import hostile_onnx
import hostile_valid as valid
from hostile_case import Case
from hostile_networks import Trap, bomb, torch_pickle
from hostile_onnx import _outside as outside
from tunefleet.core.importing import DEFAULT_IMPORT, ImportOptions
from tunefleet.core.shapes import ShapeRequest

_ARCHIVE, _NAME = "archive", "name"


class Given:
    """Where an upload is made. Nothing may create `canary`, nor connect to `port`."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder / "given"
        self.folder.mkdir()
        self.canary = folder / "canary"
        self.port = port

    def write(self, name: str, content: bytes | str) -> str:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return name


@dataclass(frozen=True)
class Sent:
    """A file as it was received, the name under which it was sent, and what is asked with it."""

    path: Path
    name: str
    options: ImportOptions = DEFAULT_IMPORT


@dataclass(frozen=True)
class Upload:
    """`quick`: one that a short run tries."""

    kind: str
    name: str
    make: Callable[[Given], Sent]
    may_be_taken: bool = False
    quick: bool = False


def uploads() -> list[Upload]:
    return [*_archives(), *_names(), *_networks()]


def _packed(members: Mapping[str, bytes], mode: int = 0) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, member in members.items():
            info = zipfile.ZipInfo(name)
            info.external_attr, info.compress_type = mode << 16, zipfile.ZIP_DEFLATED
            archive.writestr(info, member)
    return content.getvalue()


def _sent(given: Given, content: bytes, name: str) -> Sent:
    return Sent(given.folder / given.write("part", content), name)


def _archive(name: str, build: Callable[[Given], bytes], **more: bool) -> Upload:
    return Upload(_ARCHIVE, name, lambda given: _sent(given, build(given), "upload.zip"), **more)


def _overlapping(given: Given) -> bytes:
    """One member of 1 MiB of zeros that a thousand entries of the list name."""
    whole = _packed({"a.onnx": bytes(1 << 20)})
    end = whole.rindex(b"PK\x05\x06")
    begin = whole.rindex(b"PK\x01\x02", 0, end)
    entry = whole[begin:end]
    many = b"".join(entry.replace(b"a.onnx", b"%06d" % number) for number in range(1000))
    tail = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 1000, 1000, len(many), begin, 0)
    return whole[:begin] + many + tail


def _changed(old: bytes, new: bytes) -> Callable[[Given], bytes]:
    return lambda given: _packed({"a.onnx": valid.convolution()}).replace(old, new)


def _lying(given: Given) -> bytes:
    content = valid.convolution()
    lengths = len(content).to_bytes(4, "little")
    return _packed({"a.onnx": content}).replace(lengths, (10).to_bytes(4, "little"))


def _encrypted(given: Given) -> bytes:
    whole = bytearray(_packed({"a.onnx": valid.convolution()}))
    whole[6] |= 1
    whole[whole.rindex(b"PK\x01\x02") + 8] |= 1
    return bytes(whole)


def _nested(given: Given) -> bytes:
    content = _packed({"a.onnx": valid.convolution()})
    for level in range(20):
        content = _packed({f"level{level}.zip": content})
    return content


def _tar(given: Given) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        info = tarfile.TarInfo("../../canary")
        info.size = 1
        archive.addfile(info, io.BytesIO(b"x"))
    return content.getvalue()


def _huge_list(given: Given) -> bytes:
    """A list of 200,000 files."""
    return _packed({f"{number:08d}": b"" for number in range(200_000)})


def _huggingface(change: Callable[[dict[str, bytes], Given], None]) -> Callable[[Given], bytes]:
    def build(given: Given) -> bytes:
        files = valid.huggingface()
        change(files, given)
        return _packed({f"net/{name}": content for name, content in files.items()})

    return build


def _pickled(files: dict[str, bytes], given: Given) -> None:
    files["pytorch_model.bin"] = torch_pickle(Trap(given.canary))
    del files["model.safetensors"]


def _beside(location: str) -> Callable[[Given], bytes]:
    """A network whose weights lie where it says."""
    return lambda given: _packed({"a.onnx": outside(location).SerializeToString()})


def _linked_weights(given: Given) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("a.onnx", outside("w.bin").SerializeToString())
        info = zipfile.ZipInfo("w.bin")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(info, "/etc/passwd")
    return content.getvalue()


def _linked_folder(given: Given) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        info = zipfile.ZipInfo("net")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(info, str(given.folder.parent))
        archive.writestr("net/canary", "x")
    return content.getvalue()


def _archives() -> list[Upload]:
    onnx = valid.convolution()
    return [
        _archive("a member that leads out", lambda g: _packed({"../../canary": b"x"}), quick=True),
        _archive("a member with an absolute path", lambda g: _packed({str(g.canary): b"x"})),
        _archive("a member that leads out by backslashes",
                 lambda g: _packed({"..\\..\\canary": b"x"})),
        _archive("a member that leads out and back in", lambda g: _packed({"a/../../b": b"x"})),
        _archive("weights that are a link to /etc/passwd", _linked_weights),
        _archive("a link to a folder and a file below it", _linked_folder),
        _archive("a member that is a device",
                 lambda g: _packed({"a.onnx": b""}, stat.S_IFCHR | 0o666)),
        _archive("a member that is a pipe", lambda g: _packed({"a.onnx": b""}, stat.S_IFIFO)),
        _archive("8 GiB of zeros", lambda g: bomb("a.onnx")),
        _archive("a thousand entries of one member", _overlapping),
        _archive("200,000 files", _huge_list),
        _archive("archives 20 deep", _nested),
        _archive("folders 100 deep", lambda g: _packed({"/".join(["d"] * 100): b"x"})),
        _archive("a name of 60,000 letters", lambda g: _packed({"a" * 60_000: b"x"})),
        _archive("names that steer a terminal", lambda g: _packed({"a\x1b[2J\u202e.onnx": onnx})),
        _archive("two files of one name", lambda g: _packed({"a.onnx": onnx, "b.onnx": onnx})
                 .replace(b"b.onnx", b"a.onnx")),
        _archive("a file and a folder of one name",
                 lambda g: _packed({"a.onnx": onnx, "a.onnx/b": b"x"})),
        _archive("a length that lies", _lying, quick=True),
        _archive("an encrypted member", _encrypted),
        _archive("an unknown compression", _changed(b"\x00\x00\x08\x00", b"\x00\x00\x63\x00")),
        _archive("an archive cut in half", lambda g: _packed({"a.onnx": onnx})[:200]),
        _archive("an empty archive", lambda g: b"PK\x05\x06" + bytes(18)),
        _archive("a tar under the name of a zip", _tar),
        _archive("two networks", lambda g: _packed({"a.onnx": onnx, "b.tflite": b"x"})),
        _archive("a Hugging Face folder of pickle", _huggingface(_pickled)),
        _archive("weights in the folder above", _beside("../given/upload.zip")),
        _archive("a network behind an archive", lambda g: _packed({"x": b"x"}) + onnx),
        Upload("polyglot", "an archive behind a network", lambda g: _sent(
            g, onnx + _packed({"../../canary": b"x"}), "a.onnx"), may_be_taken=True),
        Upload("polyglot", "an archive as ONNX", lambda g: _sent(
            g, _packed({"a.onnx": onnx}), "a.onnx")),
        Upload("polyglot", "pickle behind a .pt2", lambda g: _sent(
            g, valid.exported() + torch_pickle(Trap(g.canary)), "a.pt2"), may_be_taken=True),
        Upload("polyglot", "a program of the shell as TFLite", lambda g: _sent(
            g, f"#!/bin/sh\ntouch {g.canary}\n".encode(), "a.tflite")),
    ]  # fmt: skip


def _names() -> list[Upload]:
    def named(shown: str, name: str, **more: bool) -> Upload:
        return Upload(_NAME, shown, lambda g: _sent(g, valid.convolution(), name), **more)

    def trusting(given: Given) -> Sent:
        sent = _sent(given, torch_pickle(Trap(given.canary)), "a.pt2")
        return Sent(sent.path, sent.name, ImportOptions(trust=True))

    return [
        named("a name that leads out", "../../../canary.onnx", quick=True),
        named("a name with NUL", "a.onnx\0.txt"),
        named("a name with a line break", "a\nerror: b.onnx"),
        named("a name of the zoo", "zoo:resnet50"),
        named("a name as an option", "--trust.onnx"),
        named("a name of 300 letters", "n" * 300 + ".onnx"),
        named("a name of another kind of file", "a.onnx.exe"),
        named("a name for a shell", "$(touch canary).onnx", may_be_taken=True),
        Upload(_NAME, "a file of 0 bytes", lambda g: _sent(g, b"", "a.onnx"), quick=True),
        Upload(_NAME, "pickle that asks for trust", trusting),
    ]  # fmt: skip


#: Of the cases of `hostile.py`, by their names.
_CHOSEN = (
    "corrupt ONNX", "ONNX cut in half", "gzipped ONNX", "a page of HTML as ONNX",
    "a length of 2^63", "protobuf groups 100,000 deep", "a circle", "a function that calls itself",
    "functions that double 30 times", "500 branches, one in another", "100,000 operators",
    "a loop of 2^63 - 1 rounds", "an input of 2^128 places", "a dimension of -2^63",
    "ConstantOfShape of 10^15 places", "Resize by NaN", "products that double 40 times",
    "a weight of 2^60 places", "a weight with too few bytes", "weights of NaN",
    "weights in ../../../../etc/passwd", "weights in /dev/zero", "names of control characters",
    "names that are not UTF-8",
    "torch.save of an object", "weights as pickle", "pickle under the name of a program",
    "example inputs as pickle", "an archive of 8 GiB of zeros", "compiled code in a program",
    "a program that calls torch.os.system", "an extent that is code", "a guard that is code",
    "an extent of 50,000 brackets", "a TorchScript module",
    "TFLite whose offsets are all 2^32 - 1", "TFLite with extents of 2^31 - 1",
    "a Keras model with a Lambda layer", "a Keras model of os.system",
    "a Hugging Face folder with code", "a model of 10^9 layers",
    "an index of weights outside of the folder", "safetensors beyond the end",
    "a SavedModel of garbage",
)  # fmt: skip
_QUICK = ("corrupt ONNX", "weights in ../../../../etc/passwd")


def _networks() -> list[Upload]:
    cases = {
        case.name: case
        for module in (hostile_onnx, hostile_networks, hostile_folders)
        for case in module.cases()
    }
    return [_upload(cases[name]) for name in _CHOSEN]


def _upload(case: Case) -> Upload:
    """What a case gives to a command, sent; a folder in an archive."""

    def make(given: Given) -> Sent:
        place: Any = given
        _, name, *options = map(str, case.make(place))
        path, dims = given.folder / name, []
        if options:
            dimension, _, value = options[1].partition("=")
            dims.append((dimension, [int(value)]))
        asked = ImportOptions(ShapeRequest.of([], dims, []))
        if not path.is_dir():
            return Sent(path, name, asked)
        files = {str(file.relative_to(path.parent)): file for file in path.rglob("*")}
        content = _packed({n: file.read_bytes() for n, file in files.items() if file.is_file()})
        return Sent(given.folder / given.write("part", content), f"{name}.zip", asked)

    return Upload(case.category, case.name, make, 0 in case.codes, case.name in _QUICK)
