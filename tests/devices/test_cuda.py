"""A GPU as a device: on the emulated driver here (`tests/emulation`), on a real one by
`benchmarks/cuda_search.py`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.tvm, pytest.mark.slow]

SUITE = Path(__file__).with_name("cuda_conformance.py")


def test_it_does_what_every_device_does(emulated_gpu: dict[str, str]) -> None:
    """In processes of their own: this one has no driver."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(SUITE)]
    ended = subprocess.run(
        command, env={**os.environ, **emulated_gpu}, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stdout[-6000:]
