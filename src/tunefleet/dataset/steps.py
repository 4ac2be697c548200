"""The 14 transform steps of auto_scheduler as frozen values with named arguments.

In logs a step is a JSON array, `["SP",2,0,1024,[1,2,8],1]`. Kinds and arguments are those of TVM's
`src/auto_scheduler/transform_step.cc`; CP and TS do not exist.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated

import msgspec
from msgspec import Meta

from tunefleet.errors import InputError

#: An index of a stage, iterator, step or level, from 0. Programs have some hundreds at most;
#: `flop_rules` needs memory in proportion to a stage index.
SmallIndex = Annotated[int, Meta(ge=0, le=2**16 - 1)]
#: The length of a loop; 0 if unknown.
Length = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Flag = Annotated[int, Meta(ge=0, le=1)]
#: None, unroll, vectorize, parallel, vthread, blockIdx.x, threadIdx.x, blockIdx.y, threadIdx.y,
#: blockIdx.z, threadIdx.z, tensorize.
AnnotationKind = Annotated[int, Meta(ge=0, le=11)]


class _Step(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    stage: SmallIndex


class Annotation(_Step, frozen=True, tag="AN"):
    """Annotate an iterator."""

    iterator: SmallIndex
    annotation: AnnotationKind


class Fuse(_Step, frozen=True, tag="FU"):
    """Fuse consecutive iterators into one."""

    iterators: tuple[SmallIndex, ...]


class Pragma(_Step, frozen=True, tag="PR"):
    """Attach a pragma: `auto_unroll_max_step$N` or `debug_skip_region`."""

    iterator: SmallIndex
    pragma: str


class Reorder(_Step, frozen=True, tag="RE"):
    """Reorder all iterators."""

    order: tuple[SmallIndex, ...]


class Split(_Step, frozen=True, tag="SP"):
    """Split an iterator into one part more than there are lengths.

    With `inner_to_outer` the lengths belong to the inner parts.
    """

    iterator: SmallIndex
    extent: Length
    lengths: tuple[Length, ...]
    inner_to_outer: Flag


class FollowSplit(_Step, frozen=True, tag="FSP"):
    """Split as an earlier step did, into `parts` + 1 iterators."""

    iterator: SmallIndex
    source_step: SmallIndex
    parts: SmallIndex


class FollowFusedSplit(_Step, frozen=True, tag="FFSP"):
    """Split by the product of the factors of several earlier steps at a level."""

    iterator: SmallIndex
    source_steps: tuple[SmallIndex, ...]
    level: SmallIndex
    factor_or_parts: Flag


class StorageAlign(_Step, frozen=True, tag="SA"):
    """Align the storage of an axis."""

    iterator: SmallIndex
    factor: Length
    offset: Length


class ComputeAt(_Step, frozen=True, tag="CA"):
    """Compute at an iterator of another stage."""

    target_stage: SmallIndex
    target_iterator: SmallIndex


class ComputeInline(_Step, frozen=True, tag="CI"):
    """Inline the stage."""


class ComputeRoot(_Step, frozen=True, tag="CR"):
    """Compute the stage at the root."""


class CacheRead(_Step, frozen=True, tag="CHR"):
    """Add a stage after this one that caches it for its readers."""

    scope: str
    readers: tuple[SmallIndex, ...]


class CacheWrite(_Step, frozen=True, tag="CHW"):
    """Add a stage before this one that caches its writes."""

    scope: str


class Rfactor(_Step, frozen=True, tag="RF"):
    """Factor a reduction; adds a stage."""

    iterator: SmallIndex
    factor_iterator: SmallIndex


Step = (
    Annotation
    | Fuse
    | Pragma
    | Reorder
    | Split
    | FollowSplit
    | FollowFusedSplit
    | StorageAlign
    | ComputeAt
    | ComputeInline
    | ComputeRoot
    | CacheRead
    | CacheWrite
    | Rfactor
)

_decoder: msgspec.json.Decoder[Step] = msgspec.json.Decoder(Step)
_encoder = msgspec.json.Encoder()


@lru_cache(maxsize=1 << 16)
def normal(text: str | bytes) -> str:
    """The canonical text of a step, without spaces; raises InputError as `parse` does.

    There are few distinct steps, so results are cached.
    """
    return _encoder.encode(parse(text)).decode()


def parse(text: str | bytes) -> Step:
    """Parse a step from a JSON array; raises InputError with the reason."""
    try:
        return _decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeError) as error:
        shown = text if isinstance(text, str) else text.decode(errors="replace")
        raise InputError(f"step {shown[:80]}: {error}") from error
