"""Artifacts: what jobs delivered, file by file, and the best records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path as FilePath
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import FileResponse

from tunefleet.artifacts.opening import open_artifact
from tunefleet.core.job import Job
from tunefleet.service.caller import ByUser
from tunefleet.service.problems import not_found
from tunefleet.service.uploads import sha256_of
from tunefleet.service.values import (
    ArtifactFile,
    ArtifactPage,
    ArtifactView,
    RecordPage,
    ServiceState,
)

router = APIRouter(prefix="/v1", tags=["artifacts"])

_Id = Annotated[str, Path(pattern=r"^[0-9a-f]{6,32}$")]


@router.get("/artifacts")
def list_artifacts(
    request: Request,
    caller: ByUser,
    cursor: Annotated[str, Query(pattern=r"^([0-9a-f]{6,32})?$")] = "",
    limit: Annotated[int, Query(ge=1, le=50)] = 20,
) -> ArtifactPage:
    """Artifacts of one's jobs, newest first."""
    state = request.app.state
    jobs, more = state.jobs.page(caller.user, cursor, limit, ServiceState.SUCCEEDED)
    return ArtifactPage(artifacts=_delivered(request, jobs), next=more)


def _delivered(request: Request, jobs: Sequence[Job]) -> list[ArtifactView]:
    state, views = request.app.state, []
    for job in jobs:
        run = str((state.store.jobs.summary(job.job_id) or {}).get("run") or "")
        if run and (state.home.artifacts / run).is_dir():
            views.append(_view(state.home.artifacts / run, job))
    return views


@router.get("/artifacts/{run_id}")
def get_artifact(run_id: _Id, request: Request, caller: ByUser) -> ArtifactView:
    """One artifact with its files."""
    folder, job = request.app.state.jobs.artifact_of(caller.user, run_id)
    return _view(folder, job)


@router.get("/artifacts/{run_id}/files/{name:path}", response_class=FileResponse)
def get_artifact_file(
    run_id: _Id, name: Annotated[str, Path(max_length=300)], request: Request, caller: ByUser
) -> FileResponse:
    """A file of an artifact, or a part of it (`Range`)."""
    folder, _ = request.app.state.jobs.artifact_of(caller.user, run_id)
    if name not in {str(file.relative_to(folder)) for file in _files(folder)}:
        raise not_found(f"file {name}")
    return FileResponse(
        folder / name,
        media_type="application/octet-stream",
        headers={"Cache-Control": "private, max-age=31536000, immutable"},
        filename=FilePath(name).name,
    )


def _view(folder: FilePath, job: Job) -> ArtifactView:
    sums = dict(open_artifact(folder).files)
    files = [
        ArtifactFile(name=name, bytes=file.stat().st_size, sha256=sums.get(name) or sha256_of(file))
        for file in _files(folder)
        for name in [str(file.relative_to(folder))]
    ]
    return ArtifactView(
        id=folder.name,
        job=job.job_id,
        network=job.spec.network.name,
        target=str(job.spec.target),
        files=files,
    )


def _files(folder: FilePath) -> list[FilePath]:
    return sorted(file for file in folder.rglob("*") if file.is_file() and not file.is_symlink())


@router.get("/records/best")
def best_records(
    request: Request,
    caller: ByUser,
    operator: Annotated[str, Query(max_length=100)] = "",
    cursor: Annotated[str, Query(max_length=400)] = "",
    limit: Annotated[int, Query(ge=1, le=100)] = 50,
) -> RecordPage:
    """The fastest verified program of each task, of one's own jobs and of shared records."""
    from tunefleet.runs.records import record_page

    found, more = record_page(
        request.app.state.store, operator, cursor, limit, tenant=caller.user.name
    )
    return RecordPage(records=found, next=more)
