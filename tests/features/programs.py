"""Programs of every tuner, as texts, and any JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tunefleet.features.tilings import Tilings
from tunefleet.features.words import KINDS

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=12,
)
#: Names that primitives have, with anything after them.
NAMES = st.sampled_from(
    ["SP", "PR", "CA", "AN", "FU", "RE", "FSP", "CHR", "CHW", "RF", "CI", "GetLoops", "Split",
     "SamplePerfectTile", "SampleCategorical", "SampleComputeLocation", "ReverseComputeAt",
     "Annotate", "CacheWrite", "ComputeInline", "EnterPostproc", "?", "tile_f", *KINDS]
)  # fmt: skip
PRIMITIVES = st.lists(JSON, max_size=6) | st.tuples(NAMES, st.lists(JSON, max_size=6)).map(
    lambda pair: [pair[0], *pair[1]]
)

AUTO_SCHEDULER: list[list[Any]] = [
    ["CI", 5],
    ["SP", 3, 0, 56, [1, 7, 2], 1],
    ["SP", 3, 4, 64, [4, 2, 8], 1],
    ["SP", 3, 8, 32, [4], 1],
    ["RE", 3, [0, 4, 1, 5, 8, 2, 6, 9, 3, 7]],
    ["FSP", 4, 0, 1, 2],
    ["CA", 3, 4, 3],
    ["AN", 4, 0, 3],
    ["PR", 3, 0, "auto_unroll_max_step$64"],
]
METASCHEDULE: list[list[Any]] = [
    ["GetSBlock", [], ["conv", "main"], ["b0"]],
    ["GetLoops", ["b0"], [], ["l1", "l2", "l3"]],
    ["SamplePerfectTile", ["l1"], [4, 64], ["v4", "v5", "v6", "v7"], [7, 1, 4, 2]],
    ["Split", ["l1", "v4", "v5", "v6", "v7"], [1], ["l8", "l9", "l10", "l11"]],
    ["SamplePerfectTile", ["l2"], [4, 64], ["v12", "v13", "v14", "v15"], [1, 2, 4, 8]],
    ["Split", ["l2", "v12", "v13", "v14", "v15"], [1], ["l16", "l17", "l18", "l19"]],
    ["SamplePerfectTile", ["l3"], [2, 64], ["v20", "v21"], [16, 4]],
    ["Split", ["l3", "v20", "v21"], [1], ["l22", "l23"]],
    ["CacheWrite", ["b0"], [0, "global"], ["b24"]],
    ["ReverseComputeAt", ["b24", "l17"], [1, -1], []],
    ["Annotate", ["b0", 128], ["meta_schedule.parallel"], []],
    ["SampleCategorical", [], [[0, 16, 64], [0.5, 0.25, 0.25]], ["v25"], 2],
    ["SampleComputeLocation", ["b26"], [], ["l27"], 5],
    ["EnterPostproc", [], [], []],
    ["Unroll", ["l28"], [], []],
]
AUTOTVM: list[list[Any]] = [["tile_f", "sp", [-1, 2, 8, 16]], ["auto_unroll_max_step", "ot", 512]]
KERNEL_TUNER: list[list[Any]] = [["block_size_x", 16], ["use_padding", 0]]
TUNERS = [AUTO_SCHEDULER, METASCHEDULE, AUTOTVM, KERNEL_TUNER]

Program = Sequence[Sequence[object]]


def tilings(programs: Sequence[Program], contexts: np.ndarray | None = None) -> Tilings:
    """As a table of records has them: distinct texts, and numbers of them."""
    texts = [[json.dumps(primitive) for primitive in program] for program in programs]
    distinct = list(dict.fromkeys(text for program in texts for text in program))
    numbers = {text: number for number, text in enumerate(distinct)}
    codes = np.array([numbers[text] for program in texts for text in program], np.int64)
    lengths = np.array([len(program) for program in programs], np.int64)
    if contexts is None:
        contexts = np.zeros((len(programs), 32), np.float32)
    return Tilings.of(distinct, codes, lengths, contexts)
