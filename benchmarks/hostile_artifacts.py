"""Broken, hostile and odd artifacts, what they are given, and their signatures."""

from __future__ import annotations

import json
import os
import pickle
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hostile_case import ODD, Case, Place
from hostile_damage import Damage, cut, flipped, instead, linked
from hostile_networks import Trap

_ARTIFACTS = "Artifacts"


def cases() -> list[Case]:
    return [*_artifacts(), *_inputs(), *_signatures()]


def _artifact(
    name: str,
    damage: Damage,
    codes: tuple[int, ...] = (2,),
    command: str = "run",
    **options: Any,
) -> Case:
    """A copy of the artifact of the finished job, damaged."""

    def make(place: Place) -> Sequence[str]:
        damage(place.copied_artifact())
        return [command, "artifact", *(["--input", place.image()] if command == "run" else [])]

    return Case(_ARTIFACTS, name, make, codes, **options)


def _values(**values: Any) -> Damage:
    """artifact.json with other values."""

    def damage(folder: Path) -> None:
        path = folder / "artifact.json"
        path.write_text(
            json.dumps(json.loads(path.read_text(encoding="utf-8")) | values), encoding="utf-8"
        )

    return damage


def _without(*keys: str) -> Damage:
    def damage(folder: Path) -> None:
        path = folder / "artifact.json"
        value = json.loads(path.read_text(encoding="utf-8"))
        for key in keys:
            del value[key]
        path.write_text(json.dumps(value), encoding="utf-8")

    return damage


def _of(name: str, damage: Damage) -> Damage:
    return lambda folder: damage(folder / name)


def _own_sums(name: str, content: bytes) -> Damage:
    """Another file, with its right sum: what somebody who can write the folder can do."""

    def damage(folder: Path) -> None:
        import hashlib

        (folder / name).write_bytes(content)
        value = json.loads((folder / "artifact.json").read_text(encoding="utf-8"))
        value["files"][name] = hashlib.sha256(content).hexdigest()
        (folder / "artifact.json").write_text(json.dumps(value), encoding="utf-8")

    return damage


def _artifacts() -> list[Case]:
    def half(place: Place) -> Sequence[str]:
        place.write("half/artifact.json", '{"schema": "tunefleet-artifact/1"')
        return ["evaluate", "half"]

    def nothing(place: Place) -> Sequence[str]:
        return ["run", "nothing", "--input", place.image()]

    def added(folder: Path) -> None:
        (folder / "segments").mkdir()
        (folder / "segments" / "0123.onnx").write_bytes(b"x")

    def outside(folder: Path) -> None:
        (folder / "module.so").unlink()
        os.symlink("/etc/passwd", folder / "module.so")

    def long(path: Path) -> None:
        os.truncate(path, 20 << 30)

    def text(content: str) -> Damage:
        return _of("artifact.json", lambda path: path.write_text(content, encoding="utf-8"))

    toolchain = {"tunefleet": "0.1.0", "tvm": "0.1.0", "llvm": "22", "measure_version": 4}
    files = ("module.so", "module.safetensors", "artifact.json")
    damages: dict[str, Damage] = {
        "one bit flipped": flipped, "cut in half": cut(0.5), "cut to nothing": cut(0),
        "missing": Path.unlink, "a folder": instead(Path.mkdir), "a pipe": instead(os.mkfifo),
        "a link to itself": instead(linked),
    }  # fmt: skip
    return [
        Case(_ARTIFACTS, "damaged artifact", half, quick=True),
        Case(_ARTIFACTS, "no artifact", nothing, quick=True),
        # One bit of a text may make another text.
        *(_artifact(f"{file}: {name}", _of(file, damage), ODD if file.endswith("json") else (2,))
          for file in files for name, damage in damages.items()),
        _artifact("report.html: missing", _of("report.html", Path.unlink), ODD, "report"),
        _artifact("evaluated: one bit flipped", _of("module.so", flipped), (2,), "evaluate"),
        _artifact("text in place of a module, with its sum", _own_sums("module.so", b"x" * 999)),
        _artifact("text in place of weights, with its sum",
                  _own_sums("module.safetensors", b"x" * 999)),
        _artifact("a module behind a link", outside),
        _artifact("a segment that was added", added),
        *(_artifact(f"artifact.json: {key} of the type {type(value).__name__}",
                    _values(**{key: value}),
                    # Running needs no result.
                    ODD if key == "result" else (2,))
          for key in ("schema", "network", "target", "toolchain", "device", "files",
                      "instructions", "result")
          for value in (7, ["x"] if key != "instructions" else {"x": 1})),
        _artifact("artifact.json: 20 GB", _of("artifact.json", long)),
        _artifact("artifact.json: null", text("null")),
        _artifact("artifact.json: 100,000 brackets", text("[" * 100_000)),
        _artifact("artifact.json: a number of 100,000 digits",
                  text('{"schema": ' + "9" * 100_000 + "}")),
        _artifact("artifact.json: without sums", _without("files")),
        _artifact("artifact.json: without a result", _without("result"), (2,), "report"),
        _artifact("artifact.json: a result of text", _values(result="good"), (2,), "report"),
        _artifact("artifact.json: an empty result", _values(result={}), ODD, "report"),
        _artifact("artifact.json: files outside",
                  _values(files={"../../../etc/passwd": "0" * 64, "module.so": "0" * 64})),
        _artifact("artifact.json: another schema", _values(schema="tunefleet-artifact/99")),
        _artifact("another TVM", _values(toolchain=toolchain), (3,)),
        _artifact("instructions that this processor lacks",
                  _values(instructions=["x86_64", "avx1024"]), (2, 3)),
        _artifact("measuring with a source that is gone",
                  _values(spec="/nowhere/network.onnx"), ODD, "evaluate", most_s=90),
    ]  # fmt: skip


def _inputs() -> list[Case]:
    def given(name: str, array: Any, codes: tuple[int, ...] = (2,)) -> Case:
        def make(place: Place) -> Sequence[str]:
            np.save(place.folder / "x.npy", array)
            return ["run", str(place.world.artifact), "--input", "x.npy"]

        return Case(_ARTIFACTS, name, make, codes)

    def raw(name: str, content: Callable[[Place], bytes]) -> Case:
        def make(place: Place) -> Sequence[str]:
            file = place.write("x.npy", content(place))
            return ["run", str(place.world.artifact), "--input", file]

        return Case(_ARTIFACTS, name, make)

    def npy(header: str) -> bytes:
        text = header.encode() + b"\n"
        return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text

    def trap(place: Place) -> bytes:
        header = npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}")
        return header + pickle.dumps(Trap(place.canary))

    def archive(place: Place) -> bytes:
        np.savez(place.folder / "x.npz", np.zeros(3))
        return (place.folder / "x.npz").read_bytes()

    def twice(place: Place) -> Sequence[str]:
        return ["run", str(place.world.artifact), *["--input", place.image()] * 2]

    def pipe(place: Place) -> Sequence[str]:
        os.mkfifo(place.folder / "x.npy")
        return ["run", str(place.world.artifact), "--input", "x.npy"]

    def zero(place: Place) -> Sequence[str]:
        return ["run", str(place.world.artifact), "--input", "/dev/zero"]

    def unwritable(place: Place) -> Sequence[str]:
        return ["run", str(place.world.artifact), "--input", place.image(),
                "--output", "/dev/full"]  # fmt: skip

    huge = "{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776, 128)}"
    code = "{'descr': __import__('os').system('touch canary'), 'shape': (1,)}"
    return [
        given("an input of another shape", np.zeros((1, 3, 8, 8), "float32")),
        given("an input of another type", np.zeros((1, 3, 16, 16), "float64")),
        given("an array of letters", np.array(["a", "b"])),
        given("a scalar for an image", np.float32(1)),
        given("an input of NaN", np.full((1, 3, 16, 16), np.nan, "float32"), (0,)),
        raw("an array with pickle", trap),
        raw("an array of 512 TiB", lambda p: npy(huge)),
        raw("an array whose header is code", lambda p: npy(code)),
        raw("an array of an empty file", lambda p: b""),
        raw("an array cut short", lambda p: npy(huge.replace("1099511627776", "1"))),
        raw("an .npz archive for an array", archive),
        raw("text for an array", lambda p: b"1 2 3\n"),
        Case(_ARTIFACTS, "one input too many", twice),
        Case(_ARTIFACTS, "an array in a pipe", pipe),
        Case(_ARTIFACTS, "an array of /dev/zero", zero),
        Case(_ARTIFACTS, "an output to a full disk", unwritable),
    ]


def _signatures() -> list[Case]:
    def keys(place: Place, name: str) -> tuple[str, str]:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        key = Ed25519PrivateKey.generate()
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )  # fmt: skip
        public = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        return place.write(f"{name}.pem", private), place.write(f"{name}.pub", public)

    def run(
        name: str, change: Callable[[Place, Path, str], None], key: str = "mine.pub",
        codes: tuple[int, ...] = (2,),
    ) -> Case:  # fmt: skip
        def make(place: Place) -> Sequence[str]:
            artifact = place.copied_artifact()
            private, _ = keys(place, "mine")
            keys(place, "another")
            change(place, artifact, str(place.folder / private))
            return ["run", "artifact", "--input", place.image(), "--require-signed", key]

        return Case(_ARTIFACTS, name, make, codes)

    def nothing(place: Place, artifact: Path, private: str) -> None:
        pass

    def signed(place: Place, artifact: Path, private: str) -> None:
        place.world.tunefleet("sign", str(artifact), "--key", private)

    def then(damage: Damage) -> Callable[[Place, Path, str], None]:
        def change(place: Place, artifact: Path, private: str) -> None:
            signed(place, artifact, private)
            damage(artifact)

        return change

    def sign(name: str, content: bytes) -> Case:
        def make(place: Place) -> Sequence[str]:
            place.copied_artifact()
            return ["sign", "artifact", "--key", place.write("key.pem", content)]

        return Case(_ARTIFACTS, name, make)

    return [
        run("an artifact that is not signed", nothing),
        run("signed, and as it was", signed, codes=(0,)),
        run("signed by another key", signed, "another.pub"),
        run("a private key to check with", signed, "mine.pem"),
        run("a key that is not there", signed, "nowhere.pub"),
        run("changed after it was signed", then(_values(spec="x"))),
        run("a signature of garbage",
            then(_of("artifact.json.sig", lambda path: path.write_bytes(b"\xff" * 64)))),
        run("a signature that is empty",
            then(_of("artifact.json.sig", lambda path: path.write_bytes(b"")))),
        sign("a key of text to sign with", b"not a key"),
        sign("an empty key to sign with", b""),
    ]  # fmt: skip
