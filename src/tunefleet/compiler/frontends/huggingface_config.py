"""What a Hugging Face configuration asks for, before it is done."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tunefleet.compiler.frontends.spec import CONFIG_FILE
from tunefleet.errors import InputError
from tunefleet.system.files import check_regular

#: A model has a module for each of them, and a weight in each module.
_MODULES = re.compile(r"layer|block|depth|expert|stage")
#: As many modules are made whatever the weights are: some models use a layer several times.
_LEAST_MODULES = 1000
#: transformers makes a dictionary of them.
_MOST_LABELS = 10**6
_MOST_BYTES = 64 << 20


def check_config(folder: Path, what: str) -> None:
    """Raises InputError for more layers than there are weights: transformers makes them all before
    it looks for weights. What cannot be read is left to transformers."""
    path = folder / CONFIG_FILE
    check_regular(path, _MOST_BYTES)
    try:
        config = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return
    modules = max(_LEAST_MODULES, _weights(folder))
    for name, number in _numbers(config):
        most = _MOST_LABELS if name == "num_labels" else modules
        if number > most and (name == "num_labels" or _MODULES.search(name)):
            raise InputError(
                f"{what}: its {CONFIG_FILE} says {name} = {number:,}, for {modules:,} weights at "
                "most",
                cure="save the model again with save_pretrained",
            )


def _numbers(config: Any) -> Iterator[tuple[str, int]]:
    """Every number of a configuration and of those within it, with its name."""
    waiting = [config]
    while waiting:
        each = waiting.pop()
        if isinstance(each, list):
            waiting += each
        elif isinstance(each, dict):
            waiting += each.values()
            yield from ((k, v) for k, v in each.items() if isinstance(v, int))


def _weights(folder: Path) -> int:
    """How many weights its files say they hold."""
    from safetensors import SafetensorError, safe_open

    count = 0
    for path in folder.glob("*.safetensors"):
        try:
            with safe_open(path, framework="np") as file:
                count += len(file.keys())
        except (OSError, SafetensorError):
            continue
    return count
