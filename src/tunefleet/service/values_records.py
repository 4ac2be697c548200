"""Records, and what was learned from them, as the API has them."""

from __future__ import annotations

from pydantic import BaseModel

from tunefleet.service.values import Page


class ExploredRecord(BaseModel):
    """A trial. A failure has its kind instead of a latency; `job` is set for one's own.
    `measured_at` is in seconds since the epoch."""

    measured_at: float
    network: str
    task: str
    task_id: str
    operator: str
    shapes: str
    device: str
    target: str
    latency_us: float | None
    gflops: float | None
    failure: str | None
    candidate_id: str
    job: str | None


class ExploredPage(Page):
    records: list[ExploredRecord]


class LearnedKind(BaseModel):
    """A kind of programs in the training data of a model."""

    architecture: str
    precision: str
    records: int


class CostModelView(BaseModel):
    """A version. `parent` is the id of the version that it was trained from; `in_use`: one's
    searches use it. `created_at` is in seconds since the epoch."""

    id: str
    name: str
    kind: str
    created_at: float
    parent: str | None
    shipped: bool
    in_use: bool
    learned: list[LearnedKind]


class LearningView(BaseModel):
    """One round of learning in the background, or a choice by the user. `before` and `after` are
    the scores of the version in use and of the new one on `held_back` records: the share of
    pairs in the right order (pca), top-1 and top-5. `in_use` is the version that searches used
    from then on."""

    at: float
    outcome: str
    reason: str
    records: int
    held_back: int
    parent: str
    model: str | None
    in_use: str
    before: dict[str, float]
    after: dict[str, float]


class CostModelList(BaseModel):
    """Versions, and what was learned, newest first."""

    models: list[CostModelView]
    learnings: list[LearningView]
