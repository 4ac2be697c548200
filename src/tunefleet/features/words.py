"""A common vocabulary for the primitives of all tuners, without lowering programs.

A primitive becomes a `Word` (its action and loop nest) and its choice: the numbers that a search
picks, such as the factors of a split. Programs that differ only in their choices have the same
words, a `Skeleton`; everything derived from the words is computed once per skeleton.

auto_scheduler's steps, MetaSchedule's instructions up to its post-processing and AutoTVM's splits
are interpreted; any other primitive (an entity of AutoTVM, a parameter of Kernel Tuner) is a knob.

The meaning of a value that MetaSchedule samples from a list follows from its reader: unrolling, the
width of a fetch into shared memory, or, for the split of a loop, threads of a GPU.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
from typing import Any

from tunefleet.core.forms import DEPTHWISE_TILE, REGISTER_TILE

#: Kinds of words, in the order of the one-hot columns.
KINDS = (
    "spatial", "reduction", "split", "follow", "unroll", "location", "compute_at", "reorder",
    "fuse", "annotate", "pragma", "cache_read", "cache_write", "inline", "root", "rfactor", "knob",
    "other",
)  # fmt: skip

#: Maximum number of a word's fixed numbers.
NUMBERS = 6

_NAMES = 16
#: Larger numbers are clipped: a text may contain an integer beyond the range of floats.
_LARGEST = 2.0**62


@dataclass(frozen=True, slots=True)
class Word:
    """`nest` is the loop nest of a split; `place` its axis, counted from the end among the splits
    of the nest with the same number of parts. The splits of the main nest are spatial (with the
    maximum number of parts) or reductions."""

    kind: str
    nest: int = 0
    place: int = 0
    numbers: tuple[float, ...] = ()
    #: Whether the only factor of a split was sampled from a list: its choice is log2(1 + threads).
    listed: bool = False


@dataclass(frozen=True, slots=True)
class Skeleton:
    """The words of a program; `choices[i]` is the number of values in the choice of word i."""

    words: tuple[Word, ...]
    choices: tuple[int, ...]


Choice = tuple[float, ...]
#: A primitive without its choice, which identifies skeletons, and its choice.
Parsed = tuple[str, Choice]


#: The last number of an auto_scheduler annotation that vectorises a loop.
VECTORIZE = math.log2(1.0 + 2.0)


@lru_cache(maxsize=1 << 18)
def parse(text: str) -> Parsed:
    """Parse a primitive, a JSON array as text. Raises ValueError for other texts."""
    return parse_value(array_of(text))


def array_of(text: str) -> list[Any]:
    """A primitive's array. Raises ValueError for other texts."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"a primitive is not JSON: {text[:80]}") from error
    if not isinstance(value, list):
        raise ValueError(f"a primitive is not a JSON array: {text[:80]}")
    return value


def parse_value(value: list[Any]) -> Parsed:
    try:
        without, choice = _without_choice(value)
        if not all(abs(number) <= _LARGEST for number in choice):
            raise ValueError("numbers out of range")
        if without[0] in ("GetLoops", "Split"):
            list(without[3])
        _word(without[0], without, {}, {}, 0)
    except (TypeError, LookupError, ValueError, ArithmeticError, AttributeError):
        # It has the name of a known kind, but another form: treat it as a knob.
        without, choice = ["?", *value], tuple(numbers_in(value))[:NUMBERS]
    return json.dumps(without, separators=(",", ":")), choice


def _without_choice(value: list[Any]) -> tuple[list[Any], Choice]:
    kind = value[0] if value and isinstance(value[0], str) else ""
    if kind == "SP":
        _, stage, iterator, extent, lengths, inner_to_outer = value
        whole, factors = float(extent or 0), [float(length) for length in lengths]
        inner = math.prod(factors)
        outer = float(math.ceil(whole / inner)) if whole and inner else 0.0
        ordered = [outer, *factors] if inner_to_outer else [*factors, outer]
        return ["SP", int(stage), iterator, whole, len(factors)], tuple(ordered)
    if kind == "PR":
        name, _, number = value[3].partition("$")
        return ["PR", value[1], name], (compressed(float(number or 0)),)
    if kind == "CA":
        return ["CA", value[1], value[2] - value[1]], (compressed(value[3]),)
    if kind in _STEPS:
        if kind == "FU" and not isinstance(value[2], list):
            raise ValueError("the loops of a fusion are not a list")
        return value, ()
    if kind in _SAMPLING or kind in _INSTRUCTIONS or kind in _SILENT:
        return _instruction(kind, value)
    if value[1:2] == ["sp"]:
        # AutoTVM writes -1 for the remaining factor.
        return ["sp", kind, len(value[2])], tuple(max(1.0, float(length)) for length in value[2])
    return ["?", kind], tuple(numbers_in(value))[:NUMBERS]


def _instruction(kind: str, value: list[Any]) -> tuple[list[Any], Choice]:
    """A MetaSchedule instruction: kind, inputs, attributes, outputs, and an optional decision."""
    _, inputs, attributes, outputs = value[:4]
    if not all(isinstance(part, list) for part in (inputs, attributes, outputs)):
        raise ValueError("the parts of an instruction are not lists")
    if len(inputs) < {"SamplePerfectTile": 1, "ReverseComputeAt": 2}.get(kind, 0):
        raise ValueError("an instruction without its loop")
    if kind == "SamplePerfectTile":
        factors = tuple(float(factor) for factor in value[4])
        if len(factors) != attributes[0]:
            raise ValueError("a tile with another number of parts than declared")
        return [*value[:3], outputs], factors
    if kind == "SampleCategorical":
        return value[:4], (compressed(float(attributes[0][value[4]])),)
    if kind == "SampleComputeLocation":
        return value[:4], (float(value[4]),)
    return value, ()


#: auto_scheduler steps without a choice.
_STEPS = {
    "AN": "annotate", "FU": "fuse", "RE": "reorder", "FSP": "follow", "FFSP": "follow",
    "SA": "other", "CI": "inline", "CR": "root", "CHR": "cache_read", "CHW": "cache_write",
    "RF": "rfactor",
}  # fmt: skip
#: MetaSchedule instructions without a choice that distinguish programs.
_INSTRUCTIONS = {
    "ComputeInline": "inline", "ReverseComputeInline": "inline", "ReverseComputeAt": "compute_at",
    "CacheRead": "cache_read", "CacheWrite": "cache_write", "RFactor": "rfactor",
    "Annotate": "annotate", "Fuse": "fuse", "Tensorize": "other",
}  # fmt: skip
#: Instructions that only name objects, or follow from another decision.
_SILENT = frozenset(
    ("GetSBlock", "GetBlock", "GetLoops", "GetConsumers", "GetProducers", "GetChildBlocks",
     "GetOutputBlocks", "Split", "Reorder", "ComputeAt", "Unannotate", "EnterPostproc",
     "Bind", "SetScope", "TransformLayout", "DecomposeReduction", "Parallel", "Vectorize", "Unroll")
)  # fmt: skip
_SAMPLING = ("SamplePerfectTile", "SampleCategorical", "SampleComputeLocation")
_CHOSEN = {
    "SP": "split", "PR": "pragma", "CA": "compute_at", "SamplePerfectTile": "split",
    "SampleCategorical": "unroll", "SampleComputeLocation": "location", "?": "knob",
}  # fmt: skip
#: The instruction that starts postprocessing, which follows from the decisions.
END = '["EnterPostproc"'


@lru_cache(maxsize=1 << 14)
def skeleton(keys: tuple[str, ...]) -> tuple[Skeleton, tuple[int, ...]]:
    """The words of primitives without choices, and the index of each word's primitive."""
    entries: list[tuple[Word, int, int]] = []
    #: By loop name: the nest of the loop, and the level of the split that created it.
    nests: dict[str, int] = {}
    levels: dict[str, int] = {}
    shifts = 0
    values = [json.loads(key) for key in takewhile(lambda key: not key.startswith(END), keys)]
    readers = _readers(values)
    for number, value in enumerate(values):
        kind = value[0]
        if kind == "GetLoops":
            nests |= dict.fromkeys(map(str, value[3]), number)
        if kind == "Split":
            # Parts of a loop belong to the loop's nest.
            nests |= dict.fromkeys(map(str, value[3]), nests.get(_loop_of(value), 0))
            levels |= {str(name): level for level, name in enumerate(value[3])}
        if kind in ("CHR", "CHW", "RF"):
            shifts += 1
        word = _word(kind, value, nests, levels, shifts)
        if kind == "SampleCategorical":
            word = _listed(word, number, readers.get(str(value[3][:1])))
        if word is not None:
            entries.append((word, number, _chosen(kind, value)))
    words = _placed([word for word, _, _ in entries], [size for _, _, size in entries])
    sizes = tuple(size for _, _, size in entries)
    return Skeleton(words, sizes), tuple(number for _, number, _ in entries)


#: The word of a fetch's width.
_FETCH = "meta_schedule.cooperative_fetch"


def _loop_of(split: list[Any]) -> str:
    """The loop of a split, "" if an untrusted record names none."""
    return str(next(iter(split[1]), ""))


def _readers(values: Sequence[list[Any]]) -> dict[str, str]:
    """The reader of each value sampled from a list: "Split" or an annotation, by value name."""
    readers: dict[str, str] = {}
    for value in values:
        if value[0] == "Split" and isinstance(value[1], list):
            readers |= {str([name]): "Split" for name in value[1][1:]}
        elif value[0] == "Annotate" and value[2] == [_FETCH]:
            readers |= {str([name]): _FETCH for name in value[1][1:]}
    return readers


def _listed(word: Word | None, number: int, reader: str | None) -> Word | None:
    """The word of a value sampled from a list, given its reader."""
    if reader == "Split":
        return Word("split", nest=number, listed=True)
    return Word("other", numbers=(_name(_FETCH),)) if reader == _FETCH else word


def _word(
    kind: str, value: list[Any], nests: dict[str, int], levels: dict[str, int], shifts: int
) -> Word | None:
    if kind == "SP":
        return Word("split", nest=int(value[1]) + 1000 * shifts, numbers=(compressed(value[3]),))
    if kind == "SamplePerfectTile":
        return Word("split", nest=nests.get(_loop_of(value), 0))
    if kind == "sp":
        return Word("split", numbers=(_name(value[1]),))
    if kind in _SILENT:
        return None
    if kind == "?":
        return Word("knob", numbers=tuple(numbers_in(value[1:]))[:NUMBERS])
    if kind in ("FU", "Fuse"):
        fused = value[2] if kind == "FU" else value[1]
        return Word("fuse", numbers=(float(len(fused)),))
    if kind in _STEPS:
        # The stage index has no meaning in another network's program.
        return Word(_STEPS[kind], numbers=tuple(numbers_in(value[2:]))[:NUMBERS])
    if kind == "ReverseComputeAt":
        # 0 for a loop that no split created.
        return Word("compute_at", numbers=(1.0 + levels.get(str(value[1][1]), -1),))
    if kind == "Tensorize":
        return Word(_INSTRUCTIONS[kind], numbers=_of_intrinsic(str(value[2][0])))
    if kind == "Annotate" and value[2] in ([REGISTER_TILE], [DEPTHWISE_TILE]):
        # Its sizes are constants of the program, not choices.
        return Word("other", numbers=tuple(numbers_in([value[2], value[1][1:]]))[:NUMBERS])
    if kind in _INSTRUCTIONS:
        plain = [v for v in value[1] if not isinstance(v, str) or '"' in v]
        return Word(_INSTRUCTIONS[kind], numbers=tuple(numbers_in([plain, value[2]]))[:NUMBERS])
    return Word(
        _CHOSEN[kind], numbers=tuple(numbers_in(value[2:]))[:NUMBERS] if kind == "PR" else ()
    )


#: Lanes and depth, or rows, columns and depth, in the name of an intrinsic: `vnni.16x4`,
#: `dot_16x4_vnni`, `wmma_sync_16x16x16_f16f16f32`, `mma_m8n32k16`.
_SHAPE = re.compile(r"(?<![0-9])m?([0-9]{1,3})[xn]([0-9]{1,3})(?:[xk]([0-9]{1,3}))?(?![0-9])")


def _of_intrinsic(name: str) -> tuple[float, ...]:
    """A hash of the instruction's name without its shape, and its shape."""
    shape = _SHAPE.search(name)
    family = name if shape is None else name[: shape.start()] + name[shape.end() :]
    extents = (n for n in (shape.groups() if shape else ()) if n)
    # A few hash values for many names: collisions are rare.
    return (_name(family), _name(family[::-1]), *(compressed(float(n)) for n in extents))


def _chosen(kind: str, value: list[Any]) -> int:
    """The number of values of its choice; for a knob the maximum."""
    if kind == "SP":
        return int(value[4]) + 1
    if kind == "SamplePerfectTile":
        return int(value[2][0])
    if kind == "sp":
        return int(value[2])
    return {"?": NUMBERS}.get(kind, 1 if kind in _CHOSEN else 0)


def _placed(words: Sequence[Word], sizes: Sequence[int]) -> tuple[Word, ...]:
    """Splits with their kind, and their place among the nest's splits of as many parts."""
    nests = [word.nest for word in words if word.kind == "split"]
    main = max(nests, key=nests.count) if nests else None
    parts = max((size for word, size in zip(words, sizes, strict=True)
                 if word.kind == "split" and word.nest == main), default=0)  # fmt: skip
    seen: dict[tuple[int, int], int] = {}
    placed = []
    for word, size in zip(reversed(words), reversed(sizes), strict=True):
        if word.kind == "split":
            place = seen.get((word.nest, size), 0)
            seen[word.nest, size] = place + 1
            kind = "split" if word.nest != main else "spatial" if size == parts else "reduction"
            word = Word(kind, word.nest, place, word.numbers, word.listed)
        placed.append(word)
    return tuple(reversed(placed))


def numbers_in(value: object) -> Iterator[float]:
    """The values in a primitive, flattened."""
    if isinstance(value, list | tuple):
        for item in value:
            yield from numbers_in(item)
    elif isinstance(value, dict):
        for name, item in value.items():
            yield _name(str(name))
            yield from numbers_in(item)
    elif isinstance(value, str):
        name, _, number = value.partition("$")
        yield _name(name)
        if number.isdecimal():
            yield compressed(float(number[:20]))
    elif isinstance(value, int | float):
        yield compressed(value)
    else:
        yield 0.0


def _name(name: str) -> float:
    return 1.0 + zlib.crc32(name.encode(errors="replace")) % _NAMES


def compressed(value: float) -> float:
    """sign(x) log2(1 + |x|), bounded; 0 for non-numbers."""
    if isinstance(value, float) and math.isnan(value):
        return 0.0
    size = math.log2(1.0 + min(abs(value), _LARGEST))
    return size if value >= 0 else -size
