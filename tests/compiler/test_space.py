"""What may be vectorised, and what loading the compiler must not load."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tunefleet.compiler.space.cpu import vector_extent

pytestmark = pytest.mark.tvm


@pytest.mark.parametrize(
    ("channels", "extent"), [(64, 64), (144, 48), (96, 48), (24, 24), (1280, 64), (1000, 50)]
)
def test_vectorised_loops_divide_the_innermost_dimension(channels: int, extent: int) -> None:
    assert vector_extent(channels) == extent
    assert channels % extent == 0


@pytest.mark.parametrize("channels", [1, 7, 1009])
def test_without_a_useful_divisor_vectors_stay_long(channels: int) -> None:
    assert vector_extent(channels) == 64


def test_the_compiler_loads_without_torch_and_torch_still_loads_after_it() -> None:
    code = (
        "import sys; from tunefleet.compiler.toolchain import load_tvm; load_tvm();"
        "print('torch' in sys.modules);"
        "import torch; print(float(torch.ones(3).sum()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.split() == ["False", "3.0"]
