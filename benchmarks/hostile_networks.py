"""Broken, hostile and odd networks in files of other formats than ONNX, and files of none."""

from __future__ import annotations

import io
import json
import os
import pickle
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import hostile_valid as valid
from hostile_case import ODD, Case, Place

_TORCH, _TFLITE, _KERAS = ".pt2", "TFLite", "Keras"


def cases() -> list[Case]:
    return [*_programs(), *_tflite(), *_keras()]


class Trap:
    """What unpickling it does can be seen."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.canary}",)


def torch_pickle(value: Any) -> bytes:
    import torch

    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def rezipped(
    content: bytes,
    changed: dict[str, Callable[[bytes], bytes]],
    added: dict[str, bytes] | None = None,
    left_out: Sequence[str] = (),
) -> bytes:
    """An archive with the members whose names end so changed or left out, and others beside them
    in its top folder."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(file, "w") as new:
        for name in old.namelist():
            if name.endswith(tuple(left_out)):
                continue
            member = old.read(name)
            for ending, change in changed.items():
                if name.endswith(ending):
                    member = change(member)
            new.writestr(name, member)
        top = old.namelist()[0].partition("/")[0]
        for name, member in (added or {}).items():
            new.writestr(f"{top}/{name}", member)
    return file.getvalue()


def bomb(name: str, gib: int = 8) -> bytes:
    """An archive whose one member is so many GiB of zeros."""
    file, info = io.BytesIO(), zipfile.ZipInfo(name)
    info.compress_type = zipfile.ZIP_DEFLATED
    with (
        zipfile.ZipFile(file, "w") as archive,
        archive.open(info, "w", force_zip64=True) as member,
    ):
        block = bytes(1 << 24)
        for _ in range(gib * 64):
            member.write(block)
    return file.getvalue()


def _file(
    category: str,
    name: str,
    suffix: str,
    build: Callable[[Place], bytes],
    codes: tuple[int, ...] = (2,),
    *,
    quick: bool = False,
) -> Case:
    def make(place: Place) -> Sequence[str]:
        return ["tasks", place.write(f"network{suffix}", build(place))]

    return Case(category, name, make, codes, quick=quick)


def _program(
    name: str,
    build: Callable[[Place], bytes],
    codes: tuple[int, ...] = (2,),
    *,
    quick: bool = False,
) -> Case:
    return _file(_TORCH, name, ".pt2", build, codes, quick=quick)


def _edited(edit: Callable[[Any, Place], None], *, free: bool = False) -> Callable[[Place], bytes]:
    """A program whose graph was changed."""

    def build(place: Place) -> bytes:
        def change(content: bytes) -> bytes:
            program = json.loads(content)
            edit(program, place)
            return json.dumps(program).encode()

        return rezipped(valid.exported(free=free), {"models/model.json": change})

    return build


def _calls(target: str) -> Callable[[Any, Place], None]:
    def edit(program: Any, place: Place) -> None:
        nodes = program["graph_module"]["graph"]["nodes"]
        nodes[0]["target"] = target
        nodes[0]["inputs"] = [
            {"name": "x", "arg": {"as_string": f"touch {place.canary}"}, "kind": 1}
        ]

    return edit


def _extents(source: str) -> Callable[[Any, Place], None]:
    def edit(program: Any, place: Place) -> None:
        waiting = [program]
        while waiting:
            each = waiting.pop()
            if isinstance(each, dict):
                if "expr_str" in each:
                    each["expr_str"] = source.format(canary=place.canary)
                waiting += each.values()
            elif isinstance(each, list):
                waiting += each

    return edit


def _guards(program: Any, place: Place) -> None:
    program["guards_code"] = [f"__import__('os').system('touch {place.canary}')"]


def _circle(program: Any, place: Place) -> None:
    nodes = program["graph_module"]["graph"]["nodes"]
    program["graph_module"]["graph"]["nodes"] = nodes[::-1]


def _no_nodes(program: Any, place: Place) -> None:
    program["graph_module"]["graph"]["nodes"] = []


def _sizes(number: int) -> Callable[[Any, Place], None]:
    def edit(program: Any, place: Place) -> None:
        for meta in program["graph_module"]["graph"]["tensor_values"].values():
            meta["sizes"] = [{"as_int": number} for _ in meta["sizes"]]

    return edit


def _with_inputs(place: Place) -> bytes:
    inputs = torch_pickle(((Trap(place.canary),), {}))
    return rezipped(valid.exported(), {"sample_inputs/model.pt": lambda old: inputs})


def _pickled_weights(place: Place) -> bytes:
    trap = torch_pickle(Trap(place.canary))
    entry = {"path_name": "weight_0", "is_param": True, "use_pickle": True, "tensor_meta": None}
    config = json.dumps({"config": {"linear.bias": entry}}).encode()
    changes: dict[str, Callable[[bytes], bytes]] = {
        "model_weights_config.json": lambda old: config,
        "weights/weight_0": lambda old: trap,
    }
    return rezipped(valid.exported(), changes)


def _old_format(place: Place) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("version", "8.1")
        for name in ("state_dict", "constants", "example_inputs"):
            archive.writestr(f"serialized_{name}.pt", torch_pickle(Trap(place.canary)))
        archive.writestr("serialized_exported_program.json", "{}")
    return file.getvalue()


def _script(place: Place) -> bytes:
    import torch

    file = io.BytesIO()
    traced: Any = torch.jit.trace(torch.nn.Linear(4, 3), torch.ones(1, 4))  # type: ignore[no-untyped-call]
    torch.jit.save(traced, file)
    return file.getvalue()


def _json(content: str) -> Callable[[Place], bytes]:
    return lambda place: rezipped(
        valid.exported(), {"models/model.json": lambda old: content.encode()}
    )


def _added(**members: bytes) -> Callable[[Place], bytes]:
    names = {name.replace("__", "/"): member for name, member in members.items()}
    return lambda place: rezipped(valid.exported(), {}, names)


def _weights(change: Callable[[bytes], bytes]) -> Callable[[Place], bytes]:
    return lambda place: rezipped(valid.exported(), {"weights/weight_0": change})


def _programs() -> list[Case]:
    return [
        _program("corrupt exported program", lambda p: b"PK\x03\x04 not a program"),
        _program("an exported program cut in half",
                 lambda p: valid.exported()[: len(valid.exported()) // 2]),
        _program("an empty archive", lambda p: b"PK\x05\x06" + bytes(18)),
        _program("an archive of other files", lambda p: bomb("readme.txt", 0)),
        _program("an archive of 8 GiB of zeros", lambda p: bomb("network/models/model.json"),
                 (2,)),
        _program("an exported program with a member outside",
                 lambda p: rezipped(valid.exported(), {}, {"../../../canary": b"x"}), ODD),
        _program("example inputs as pickle", _with_inputs, ODD),
        _program("weights as pickle", _pickled_weights),
        _program("constants as pickle", lambda p: rezipped(valid.exported(), {}, {
            "data/constants/opaque_obj_0": pickle.dumps(Trap(p.canary))})),
        _program("an older format with pickle", _old_format),
        _program("pickle under the name of a program", lambda p: pickle.dumps(Trap(p.canary))),
        _program("torch.save of an object", lambda p: torch_pickle(Trap(p.canary))),
        _program("a TorchScript module", _script),
        _program("compiled code in a program", _added(data__aotinductor__model__x_so=b"\x7fELF")),
        *(_program(f"a program that calls {target}", _edited(_calls(target))) for target in (
            "torch.os.system", "torch.ops.load_library", "_operator.attrgetter",
            "torch.ops.aten.nowhere.default", "math.factorial",
            "torch._functorch.predispatch._vmap_increment_nesting")),
        _program("an extent that is code", _edited(
            _extents("__import__('os').system('touch {canary}')"), free=True)),
        _program("an extent of 9**9**9", _edited(_extents("9**9**9**9"), free=True)),
        _program("an extent of 50,000 brackets",
                 _edited(_extents("(" * 50_000 + "s0" + ")" * 50_000), free=True)),
        _program("a guard that is code", _edited(_guards), ODD),
        _program("a program in the wrong order", _edited(_circle)),
        _program("a program without nodes", _edited(_no_nodes), ODD),
        _program("tensors of 2^60 places in a program", _edited(_sizes(2**60)), ODD),
        _program("tensors of -1 places in a program", _edited(_sizes(-1)), ODD),
        _program("a program of 100,000 brackets", _json("[" * 100_000)),
        _program("a program that is a list", _json("[1, 2]")),
        _program("a program that is null", _json("null")),
        _program("a program whose graph is text", _json('{"graph_module": {"graph": "x"}}')),
        _program("a program without its weights", lambda p: rezipped(
            valid.exported(), {}, left_out=["weights/weight_0"])),
        _program("a program without a list of its weights", lambda p: rezipped(
            valid.exported(), {}, left_out=["model_weights_config.json"])),
        _program("weights of a program cut short", _weights(lambda old: old[:5])),
        _program("weights of a program that are empty", _weights(lambda old: b"")),
    ]  # fmt: skip


def _tflite() -> list[Case]:
    def file(
        name: str, change: Callable[[bytes], bytes], codes: tuple[int, ...] = (2,), *,
        quick: bool = False,
    ) -> Case:  # fmt: skip
        return _file(_TFLITE, name, ".tflite", lambda p: change(valid.tflite()), codes, quick=quick)

    def extents(second: int) -> Callable[[bytes], bytes]:
        def change(whole: bytes) -> bytes:
            before, after = (np.array([1, n], "int32").tobytes() for n in (4, second))
            return whole.replace(before, after)

        return change

    return [
        file("corrupt TFLite", lambda whole: b"\x00\x00\x00\x20TFL3" + b"\x13\x37" * 500),
        file("TFLite of four bytes", lambda whole: whole[:4]),
        file("TFLite cut in half", lambda whole: whole[: len(whole) // 2]),
        file("TFLite of zeros", lambda whole: bytes(4096)),
        file("TFLite whose offsets are all 2^32 - 1", lambda whole: whole[:8] + b"\xff" * 4096),
        file("TFLite with negative extents", extents(-4)),
        file("TFLite with extents of 2^31 - 1", extents(2**31 - 1), (2, 6)),
        file("TFLite with names that are not UTF-8", lambda whole: whole.replace(
            b"\x01\x00\x00\x00x\x00", b"\x01\x00\x00\x00\xff\x00"), ODD),
        file("ONNX as TFLite", lambda whole: valid.convolution()),
    ]  # fmt: skip


def _keras() -> list[Case]:
    def file(name: str, build: Callable[[Place], bytes], codes: tuple[int, ...] = (2,)) -> Case:
        return _file(_KERAS, name, ".keras", build, codes)

    def config(change: Callable[[Any], Any]) -> Callable[[Place], bytes]:
        def changed(content: bytes) -> bytes:
            return json.dumps(change(json.loads(content))).encode()

        return lambda place: rezipped(valid.keras(place.folder), {"config.json": changed})

    def text(content: bytes) -> Callable[[Place], bytes]:
        return lambda place: rezipped(
            valid.keras(place.folder), {"config.json": lambda old: content}
        )

    def another_class(module: str, name: str) -> Callable[[Any], Any]:
        def change(value: Any) -> Any:
            layer = value["config"]["layers"][1]
            layer["module"], layer["class_name"], layer["registered_name"] = module, name, None
            layer["config"] = {"args": ["touch canary"], "command": "touch canary"}
            return value

        return change

    def units(number: Any) -> Callable[[Any], Any]:
        def change(value: Any) -> Any:
            value["config"]["layers"][1]["config"]["units"] = number
            return value

        return change

    def weights(content: bytes) -> Callable[[Place], bytes]:
        return lambda place: rezipped(
            valid.keras(place.folder), {"model.weights.h5": lambda old: content}
        )

    return [
        file("corrupt Keras model", lambda p: b"no archive"),
        file("a Keras model with a Lambda layer", lambda p: valid.keras(p.folder, code=True)),
        file("a Keras model of subprocess.Popen", config(another_class("subprocess", "Popen"))),
        file("a Keras model of os.system", config(another_class("os", "system"))),
        file("a Keras layer that does not exist", config(another_class("keras.layers", "Nope"))),
        file("a Keras configuration that is a list", config(lambda value: [1])),
        file("a Keras configuration of 100,000 brackets", text(b"[" * 100_000)),
        file("a Keras configuration that is not UTF-8", text(b"\xff\xfe{")),
        file("a Keras layer of -4 units", config(units(-4))),
        file("a Keras layer of 2^62 units", config(units(2**62)), (2, 6)),
        file("a Keras layer of units that are text", config(units("many"))),
        file("a Keras model without weights", lambda p: rezipped(
            valid.keras(p.folder), {}, left_out=["model.weights.h5"])),
        file("Keras weights that are no HDF5", weights(b"nothing")),
        file("a Keras model of 8 GiB of zeros", lambda p: bomb("config.json"), (2,)),
    ]  # fmt: skip
