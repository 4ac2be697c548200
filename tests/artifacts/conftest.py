from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tunefleet


@pytest.fixture(scope="session")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("home")
    context = tunefleet.BenchmarkContext("cpu", threads=1, home=home)
    with tunefleet.Session(context) as session:
        session.from_network("zoo:tiny_cnn").build().save()
        return Path(str(session.result().artifact))


@pytest.fixture
def copied(artifact: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(artifact, tmp_path / "copied"))


@pytest.fixture
def image() -> Any:
    return np.random.default_rng(0).standard_normal((1, 3, 16, 16), dtype=np.float32)
