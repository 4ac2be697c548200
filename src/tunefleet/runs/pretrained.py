"""Which pretrained cost model steers a search: the one that is named, or the default, of which the
home may have a version of its own."""

from __future__ import annotations

import time
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tunefleet.core.settings import SHIPPED_MODEL, SearchSettings
from tunefleet.errors import InputError
from tunefleet.runs.context import BenchmarkContext

if TYPE_CHECKING:
    from tunefleet.costmodel.registry import Registry, RegistryEntry
    from tunefleet.store import Store


def steered(
    search: SearchSettings, context: BenchmarkContext, store: Store | None = None
) -> SearchSettings:
    """With the id of the pretrained model in place of its name: a new version is another job. The
    home's store is opened where it is not given.

    None steers a search that is to be random. Which tasks it steers is the card's to say
    (`stages.steering`).
    """
    from tunefleet.costmodel.registry import registry_of

    if not search.pretrained or search.cost_model == "random":
        return replace(search, pretrained="")
    model = _default_model(context, store) if search.pretrained == SHIPPED_MODEL else None
    model = model or pretrained_model(search.pretrained, context.home)
    return replace(search, pretrained=registry_of(context.home).keep(model).card.id)


def _default_model(context: BenchmarkContext, store: Store | None) -> RegistryEntry | None:
    """What was learned in the background for these searches, or chosen for them; None where nothing
    was, or what is there is damaged."""
    from tunefleet.costmodel.registry import registry_of
    from tunefleet.features.tilings import SCHEMA
    from tunefleet.store import open_store

    if not context.home.is_dir():
        return None
    registry = registry_of(context.home)
    try:
        with nullcontext(store) if store else closing(open_store(context.home)) as opened:
            if not opened.explorer.learnings(context.tenant, 1):
                return None
            entry = in_use(registry, opened, context.tenant)
        entry.data()
    except InputError:
        return None
    return entry if entry.card.features == SCHEMA else None


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


def in_use(registry: Registry, store: Store, tenant: str) -> RegistryEntry:
    """The version that searches of a tenant use by default: the one that was learned or chosen,
    unless one was given the default's name since."""
    newest = next(iter(store.explorer.learnings(tenant, 1)), None)
    named = registry.get(SHIPPED_MODEL)
    is_named_since = newest is not None and (
        not registry.is_shipped(named) and named.card.created > newest.at
    )
    if newest is None or is_named_since:
        return named
    try:
        return registry.get(newest.in_use)
    except InputError:  # it was removed
        return named


def use(registry: Registry, store: Store, tenant: str, model: str) -> RegistryEntry:
    """Let a tenant's searches use a version from now on. Raises InputError."""
    before, entry = in_use(registry, store, tenant), registry.get(model)
    from tunefleet.store import Learning, LearningOutcome

    store.explorer.add_learning(
        Learning(
            tenant=tenant,
            at=time.time(),
            outcome=LearningOutcome.CHOSEN,
            parent=before.card.id,
            model=entry.card.id,
            in_use=entry.card.id,
        )
    )
    return entry
