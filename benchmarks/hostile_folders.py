"""Broken, hostile and odd networks that are folders: of Hugging Face, and SavedModels."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from typing import Any

import hostile_valid as valid
from hostile_case import ODD, Case, Place, Skipped
from hostile_networks import Trap, torch_pickle

_FOLDER = "Hugging Face and SavedModel"


def cases() -> list[Case]:
    def folder(
        name: str,
        change: Callable[[dict[str, bytes], Place], None],
        codes: tuple[int, ...] = (2,),
        *,
        quick: bool = False,
    ) -> Case:
        def make(place: Place) -> Sequence[str]:
            files = valid.huggingface()
            change(files, place)
            for file, content in files.items():
                place.write(f"network/{file}", content)
            return ["tasks", "network", "--dim", "sequence=4"]

        return Case(_FOLDER, name, make, codes, quick=quick)

    def config(**values: Any) -> Callable[[dict[str, bytes], Place], None]:
        def change(files: dict[str, bytes], place: Place) -> None:
            files["config.json"] = json.dumps(json.loads(files["config.json"]) | values).encode()

        return change

    def written(content: bytes, file: str = "config.json") -> Callable[..., None]:
        def change(files: dict[str, bytes], place: Place) -> None:
            files[file] = content

        return change

    def code(files: dict[str, bytes], place: Place) -> None:
        source = f"import os\nos.system('touch {place.canary}')\n"
        files["mine.py"] = source.encode()
        config(auto_map={"AutoModel": "mine.Mine", "AutoConfig": "mine.Mine"})(files, place)

    def other_code(files: dict[str, bytes], place: Place) -> None:
        code(files, place)
        config(model_type="mine", architectures=["Mine"])(files, place)

    def pickled(files: dict[str, bytes], place: Place) -> None:
        del files["model.safetensors"]
        files["pytorch_model.bin"] = torch_pickle(Trap(place.canary))

    def pickle_beside(files: dict[str, bytes], place: Place) -> None:
        files["pytorch_model.bin"] = torch_pickle(Trap(place.canary))
        files["model.safetensors"] = b"nothing"

    def header(content: bytes) -> Callable[..., None]:
        return written(content, "model.safetensors")

    def entry(**values: Any) -> bytes:
        tensor = {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]} | values
        text = json.dumps({"pooler.dense.bias": tensor}).encode()
        return len(text).to_bytes(8, "little") + text + bytes(16)

    def saved_model(content: bytes) -> Callable[[Place], Sequence[str]]:
        def make(place: Place) -> Sequence[str]:
            place.write("network/saved_model.pb", content)
            return ["tasks", "network"]

        return make

    def without_weights(files: dict[str, bytes], place: Place) -> None:
        del files["model.safetensors"]

    def without_config(files: dict[str, bytes], place: Place) -> None:
        del files["config.json"]

    def index(files: dict[str, bytes], place: Place) -> None:
        names = {"pooler.dense.bias": "../../../../etc/passwd"}
        files["model.safetensors.index.json"] = json.dumps({"weight_map": names}).encode()

    def pipe(place: Place) -> Sequence[str]:
        for file, content in valid.huggingface().items():
            place.write(f"network/{file}", content)
        (place.folder / "network" / "model.safetensors").unlink()
        os.mkfifo(place.folder / "network" / "model.safetensors")
        return ["tasks", "network", "--dim", "sequence=4"]

    def variables(place: Place) -> Sequence[str]:
        if not _has_tensorflow():
            raise Skipped("TensorFlow is not installed")
        place.write("network/variables/variables.index", b"nothing")
        return saved_model(b"\x08\x01")(place)

    return [
        folder("a Hugging Face folder without weights", without_weights, quick=True),
        folder("a Hugging Face folder without config.json", without_config),
        folder("a Hugging Face folder with code", code, ODD),
        folder("a Hugging Face folder of a class of its own", other_code),
        folder("Hugging Face weights as pickle", pickled),
        folder("pickle beside broken safetensors", pickle_beside),
        folder("a config.json that is no JSON", written(b"{")),
        folder("a config.json of 100,000 brackets", written(b"[" * 100_000)),
        folder("a config.json that is a list", written(b"[1]")),
        folder("a config.json that is not UTF-8", written(b"\xff\xfe")),
        folder("an unknown type of model", config(model_type="mine")),
        folder("a class that is not of transformers", config(architectures=["os.system"])),
        folder("a class that is a list", config(architectures=[["BertModel"]])),
        folder("a model of -1 layers", config(num_hidden_layers=-1), ODD),
        folder("a model of 10^9 layers", config(num_hidden_layers=10**9)),
        folder("a model of 0 heads", config(num_attention_heads=0)),
        folder("a model of a width of 10^12", config(hidden_size=10**12)),
        folder("a vocabulary of text", config(vocab_size="large")),
        folder("an activation that does not exist", config(hidden_act="boom")),
        folder("a safetensors header of 2^60 bytes", header(b"\x00" * 7 + b"\x10" + b"{}")),
        folder("safetensors of 3 bytes", header(b"abc")),
        folder("safetensors of overlapping weights", header(entry(data_offsets=[8, 8]))),
        folder("safetensors beyond the end", header(entry(data_offsets=[0, 2**40]))),
        folder("safetensors of a negative extent", header(entry(shape=[-2, 2]))),
        folder("safetensors of an unknown type", header(entry(dtype="F99"))),
        folder("an index of weights outside of the folder", index, ODD),
        Case(_FOLDER, "weights in a pipe", pipe, (2,)),
        Case(_FOLDER, "a SavedModel of garbage", saved_model(b"\x13\x37" * 99), (2, 3)),
        Case(_FOLDER, "an empty SavedModel", saved_model(b""), (2, 3)),
        Case(_FOLDER, "a SavedModel with broken variables", variables, (2,)),
    ]  # fmt: skip


def _has_tensorflow() -> bool:
    from importlib.util import find_spec

    return find_spec("tensorflow") is not None
