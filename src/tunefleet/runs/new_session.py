"""`from_network`: a session that begins with its network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tunefleet.core.events import Observer
from tunefleet.core.precision import FLOAT32
from tunefleet.runs.context import BenchmarkContext
from tunefleet.runs.given_inputs import GivenInputs
from tunefleet.runs.session import Session

if TYPE_CHECKING:
    from torch.nn import Module


def from_network(
    network: str | Path | Module,
    *,
    context: BenchmarkContext | None = None,
    observer: Observer | None = None,
    example_inputs: Sequence[Any] | Mapping[str, Any] | None = None,
    dynamic: Mapping[str, Mapping[int, Any]] | None = None,
    shapes: Mapping[str, Sequence[int] | Sequence[Sequence[int]]] | None = None,
    dims: Mapping[str, int | Sequence[int]] | None = None,
    constants: Mapping[str, float | Sequence[float]] | None = None,
    whole: bool = False,
    trust: bool = False,
    precision: str = FLOAT32,
    calibrate: str | Path | None = None,
    inputs: GivenInputs | None = None,
) -> Session:
    """A new session with a network imported and checked.

    `context` and `observer` are those of `Session`, all else is that of `Session.from_network`,
    with the same errors. The session starts worker processes: close it, or use it in a `with`
    block.
    """
    session = Session(context, observer)
    try:
        return session.from_network(
            network,
            example_inputs=example_inputs,
            dynamic=dynamic,
            shapes=shapes,
            dims=dims,
            constants=constants,
            whole=whole,
            trust=trust,
            precision=precision,
            calibrate=calibrate,
            inputs=inputs,
        )
    except BaseException:
        session.close()
        raise
