"""What a user asks of a search: its budget, its settings, and the job that they make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tunefleet.core.budget import Budget
from tunefleet.core.importing import NetworkSource
from tunefleet.core.job import JobSpec
from tunefleet.core.network import NetworkInfo
from tunefleet.core.settings import SearchSettings, TuneSettings
from tunefleet.core.shapes import ShapeRequest
from tunefleet.errors import InputError
from tunefleet.runs.context import BenchmarkContext

if TYPE_CHECKING:
    from tunefleet.costmodel.registry import RegistryEntry

_DEFAULT_TRIALS = 1000


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """`new_job`: start afresh even where a job like this was interrupted."""

    budget: Budget
    settings: TuneSettings
    new_job: bool = False


def search_request(
    trials: int | None = None,
    *,
    minutes: float | None = None,
    target_latency_ms: float | None = None,
    profile_timeout_s: float | None = None,
    batch_size: int | None = None,
    transfer_learning: bool | None = None,
    settings: TuneSettings | None = None,
    new_job: bool = False,
) -> SearchRequest:
    """`trials` counts all tasks of a network together; 1,000 where no budget is given.

    `profile_timeout_s`, `batch_size` and `transfer_learning` are the parameters of the thesis's
    section 3.2; where given they go before `settings`.
    """
    if trials is None and minutes is None:
        trials = _DEFAULT_TRIALS
    budget = Budget(
        trials=trials,
        seconds=None if minutes is None else minutes * 60,
        target_latency_s=None if target_latency_ms is None else target_latency_ms / 1e3,
    )
    chosen = settings or TuneSettings()
    if profile_timeout_s is not None:
        chosen = replace(chosen, measure=replace(chosen.measure, timeout_s=profile_timeout_s))
    if batch_size is not None:
        chosen = replace(chosen, search=replace(chosen.search, batch=batch_size))
    if transfer_learning is not None:
        chosen = replace(chosen, transfer=transfer_learning)
    return SearchRequest(budget, chosen, new_job)


def job_spec(
    context: BenchmarkContext, source: NetworkSource, budget: Budget, settings: TuneSettings
) -> JobSpec:
    """A job of a network on the target of a context, measured by its devices.

    Raises InputError for a cost model that is not in the registry.
    """
    from tunefleet.compiler.toolchain.host import toolchain_of

    return JobSpec(
        network=NetworkInfo(source.name, source.spec, source.identity, (), ()),
        target=context.target,
        device=context.device,
        toolchain=toolchain_of(context.target),
        budget=budget,
        settings=replace(settings, search=_steered(settings.search, context.home)),
        source=source,
    )


def _steered(search: SearchSettings, home: Path) -> SearchSettings:
    """With the id of the pretrained model in place of its name: a new version is another job.

    None steers a search that is to be random. Which tasks it steers is the card's to say
    (`stages.steering`).
    """
    from tunefleet.costmodel.registry import registry_of

    if not search.pretrained or search.cost_model == "random":
        return replace(search, pretrained="")
    model = pretrained_model(search.pretrained, home)
    return replace(search, pretrained=registry_of(home).keep(model).card.id)


def pretrained_model(name: str, home: Path) -> RegistryEntry:
    """A model of a home's registry, or of a path, that can steer a search. Raises InputError."""
    from tunefleet.costmodel.registry import registry_of
    from tunefleet.features.tilings import SCHEMA

    registry = registry_of(home)
    entry = registry.get(name)
    if entry.card.features != SCHEMA:
        raise InputError(
            f"cost model {name} takes features of {entry.card.features}, a search has {SCHEMA}",
            cure=f"train one with --features {SCHEMA}",
        )
    if not registry.is_shipped(entry):
        entry.load()  # else every search of a long night would be given up for it
    return entry


def shape_request(
    shapes: Mapping[str, Sequence[int] | Sequence[Sequence[int]]] | None = None,
    dims: Mapping[str, int | Sequence[int]] | None = None,
    constants: Mapping[str, float | Sequence[float]] | None = None,
) -> ShapeRequest:
    """What is asked of free dimensions: a shape or several by input, a value or several by
    dimension; and the values of inputs that are always the same. Raises InputError."""
    try:
        return ShapeRequest.of(
            [(name, shape) for name, given in (shapes or {}).items() for shape in _shapes(given)],
            [(n, [v] if isinstance(v, int) else list(v)) for n, v in (dims or {}).items()],
            [(n, [v] if isinstance(v, int | float) else v) for n, v in (constants or {}).items()],
        )
    except ValueError as error:
        cure = "such as shapes={'x': [1, 3, 224, 224]}, dims={'width': [160, 320]}"
        raise InputError(str(error), cure=cure) from error


def _shapes(given: Sequence[int] | Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    if all(isinstance(extent, int) for extent in given):
        return [tuple(given)]  # type: ignore[arg-type]
    return [tuple(shape) for shape in given]  # type: ignore[arg-type]
