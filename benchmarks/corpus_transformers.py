"""Networks of Hugging Face transformers at small configurations, with seeded random weights.

Nothing is downloaded: configurations are made here, and weights are drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
import transformers

from corpus import Architecture, Example
from corpus_examples import seeded
from corpus_transformers_senses import SENSES
from corpus_transformers_text import TEXTS, Entry


def _model(kind: str, head: str, sizes: Mapping[str, Any]) -> Any:
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, **sizes)
    for part in (config, config.get_text_config()):
        if hasattr(part, "use_cache"):
            part.use_cache = False
    found = getattr(transformers, head)
    return seeded(found.from_config(config) if head.startswith("Auto") else found(config))


def _build(entry: Entry) -> Example:
    kind, head, sizes, example = entry
    return example(_model(kind, head, sizes))


def networks() -> list[Architecture]:
    """Each of them; one of a model type has its name, a second the class as well."""
    found: dict[str, Architecture] = {}
    for entry in (*TEXTS, *SENSES):
        name = entry[0] if entry[0] not in found else f"{entry[0]}-{entry[2]['attention_type']}"
        found[name] = Architecture("transformers", name, entry[0], partial(_build, entry))
    return list(found.values())
