"""Cost models: the versions that one's searches use or used, and what they learned."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from fastapi import APIRouter, Path, Request

from tunefleet.core.settings import SHIPPED_MODEL
from tunefleet.costmodel.registry import Registry, RegistryEntry, registry_of
from tunefleet.errors import InputError
from tunefleet.runs.pretrained import in_use, use
from tunefleet.service.caller import ByUser
from tunefleet.service.problems import not_found
from tunefleet.service.values_records import CostModelList, CostModelView, LearnedKind, LearningView
from tunefleet.store import Learning

router = APIRouter(prefix="/v1/cost-models", tags=["cost models"])

#: Learnings that are shown.
_MOST = 100


@router.get("")
def list_cost_models(request: Request, caller: ByUser) -> CostModelList:
    """The versions for one's searches: the one that comes with tunefleet, and those that learned
    in the background from one's own and from shared records."""
    state, tenant = request.app.state, caller.user.name
    registry = registry_of(state.home.root)
    learnings = state.store.explorer.learnings(tenant, _MOST)
    used = in_use(registry, state.store, tenant).card.id
    entries = sorted(_versions(registry, learnings), key=lambda entry: -entry.card.created)
    models = [
        CostModelView(
            id=entry.card.id,
            name=entry.card.name,
            kind=entry.card.kind,
            created_at=entry.card.created,
            parent=entry.card.parent,
            shipped=registry.is_shipped(entry),
            in_use=entry.card.id == used,
            learned=[
                LearnedKind(
                    architecture=kind.architecture, precision=kind.precision, records=kind.records
                )
                for kind in entry.card.learned
            ],
        )
        for entry in entries
    ]
    return CostModelList(models=models, learnings=[_view(each) for each in learnings])


@router.post("/{model_id}/use")
def use_cost_model(
    model_id: Annotated[str, Path(pattern=r"^[0-9a-f]{32}$")], request: Request, caller: ByUser
) -> CostModelList:
    """Use one of these versions in one's searches from now on, until a better one is learned."""
    state, tenant = request.app.state, caller.user.name
    registry = registry_of(state.home.root)
    known = _versions(registry, state.store.explorer.learnings(tenant, _MOST))
    if model_id not in {entry.card.id for entry in known}:
        raise not_found(f"cost model {model_id[:12]}")
    use(registry, state.store, tenant, model_id)
    state.audit.keep(tenant, "use cost model", model=model_id)
    return list_cost_models(request, caller)


def _versions(registry: Registry, learnings: list[Learning]) -> Iterator[RegistryEntry]:
    """The default and the versions learned from it that still exist."""
    ids = {name for each in learnings for name in (each.parent, each.model, each.in_use) if name}
    shipped = registry.shipped_of(SHIPPED_MODEL)
    if shipped is not None:
        ids.add(shipped.card.id)
    for name in sorted(ids):
        try:
            yield registry.get(name)
        except InputError:
            continue


def _view(learning: Learning) -> LearningView:
    return LearningView(
        at=learning.at,
        outcome=learning.outcome.value,
        reason=learning.reason,
        records=learning.records,
        held_back=learning.held_back,
        parent=learning.parent,
        model=learning.model or None,
        in_use=learning.in_use,
        before=learning.before,
        after=learning.after,
    )
