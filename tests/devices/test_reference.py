from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.tvm


@pytest.mark.parametrize("threads", [1, 2])
def test_a_kernel_that_reads_reads_all_of_it_as_often_as_it_says(
    threads: int, tmp_path: Path
) -> None:
    """Its sums show it: of ones they are the numbers that were read."""
    from tunefleet.compiler.toolchain.host import native_target
    from tunefleet.devices.cpu import LocalCpu
    from tunefleet.devices.reference import reading_kernel

    size = 64 * 1024
    read, built = reading_kernel(native_target(threads), str(tmp_path), size)
    shape = built.args[0][0]
    sums, _ = LocalCpu(threads).load(built, 10.0).run([np.ones(s, t) for s, t in built.args])
    assert int(np.prod(shape)) * 4 == size
    assert float(sums.sum()) * 4 == read


def test_bandwidths_are_measured_from_the_smallest_level(tmp_path: Path, machine) -> None:
    from tunefleet.compiler.toolchain.host import native_target
    from tunefleet.stages import work

    levels = (("L1", 65536, 32768), ("memory", 0, 2**24))
    found = machine.device.call(
        work.bandwidths, native_target(1), str(tmp_path), levels, timeout_s=60
    )
    assert [each.level for each in found] == ["L1", "memory"]
    assert all(0.1 < each.gb_s < 1e5 for each in found)
