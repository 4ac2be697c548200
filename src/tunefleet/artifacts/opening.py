"""Opens saved artifacts, by their directory or by the run that made them, and runs them."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tunefleet.artifacts.artifact import Artifact, read_artifact
from tunefleet.artifacts.module import TunedModule
from tunefleet.core.home import SHORTEST_ID, Home, default_home
from tunefleet.errors import InputError


def open_artifact(
    path_or_id: str | Path, home: Path | str | None = None, signed_by: Path | str | None = None
) -> Artifact:
    """The artifact in a directory, or of a run by the beginning of its id. Raises InputError."""
    path = artifact_folder(path_or_id, Path(home or default_home()))
    return read_artifact(path, None if signed_by is None else Path(signed_by))


def artifact_folder(path_or_id: str | Path, home: Path) -> Path:
    """Where the artifact lies, if there is one. Raises InputError for the beginning of several
    ids."""
    text, artifacts = str(path_or_id), Home(home).artifacts
    if os.path.isdir(text) or not re.fullmatch(rf"[0-9a-f]{{{SHORTEST_ID},32}}", text):
        return Path(text)
    matches = sorted(artifacts.glob(f"{text}*"))
    if len(matches) > 1:
        names = ", ".join(path.name for path in matches)
        raise InputError(f"{text} names {len(matches)} runs: {names}", cure="give more characters")
    return matches[0] if matches else artifacts / text


def load(
    path_or_id: str | Path,
    *,
    threads: int | None = None,
    gpu: int = 0,
    home: Path | str | None = None,
    signed_by: Path | str | None = None,
) -> TunedModule:
    """Load a tuned network to call it: `load("artifact")(image)`.

    `path_or_id` is the directory of an artifact or a run id below `home`; `threads` those of its
    kernels, by default as many as it was tuned with; `gpu` the number of the GPU for a network that
    was tuned for one. Its files are compared with what was verified
    before any is opened; with a public key `signed_by`, the artifact must be signed by its owner.
    Loading runs the artifact's code. Raises InputError when its files were
    changed or its code cannot run on this machine, SetupError when not in this installation.
    """
    return TunedModule(open_artifact(path_or_id, home, signed_by), threads, gpu)


def run_artifact(
    path_or_id: str | Path,
    arrays: Sequence[Any],
    home: Path | str | None = None,
    signed_by: Path | str | None = None,
) -> list[Any]:
    """Outputs of the delivered module for one set of inputs; `load` keeps it for many."""
    with load(path_or_id, home=home, signed_by=signed_by) as module:
        return module.run(arrays)
