"""Modules and libraries on their way, below a home: whose nobody needs any more."""

from __future__ import annotations

from pathlib import Path

from tunefleet.core.home import Home
from tunefleet.core.job import JobState
from tunefleet.store import Store, each_job


def unneeded_objects(store: Store, home: Home) -> list[Path]:
    """Folders of modules and libraries on their way, and of the preparations that they belong to,
    that no job which goes on needs; somebody may use them all the same."""
    running = list(each_job(store.jobs, state=JobState.RUNNING))
    wanted = {job.job_id for job in running}
    wanted |= {job.spec.preparation.id for job in running if job.spec.source is not None}
    folders = home.objects.iterdir() if home.objects.is_dir() else ()
    return [folder for folder in folders if folder.name not in wanted]


def sweep_objects(store: Store, home: Home) -> None:
    """Remove what `unneeded_objects` finds and nobody uses. What steps of preparations committed
    stays: the tasks of a network are known without another import."""
    from tunefleet.artifacts.blobs import remove_unused

    for folder in unneeded_objects(store, home):
        remove_unused(folder)
