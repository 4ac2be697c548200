from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytestmark = [pytest.mark.tvm, pytest.mark.slow]


def test_a_link_is_fitted_to_a_sweep() -> None:
    from tunefleet.devices.links import fitted_link

    link = fitted_link([(64, 1e-3), (2**12, 0.9e-3), (64 + 2**20, 1e-3 + 2**20 / 1e8)])
    assert link.latency_s == 1e-3
    assert link.bytes_per_s == pytest.approx(1e8)


def test_sizes_that_cannot_be_told_apart_give_a_latency() -> None:
    from tunefleet.devices.links import fitted_link

    assert np.isinf(fitted_link([(64, 1e-3), (128, 1e-3)]).bytes_per_s)


def test_this_machine_is_reached_for_a_call_and_a_server_for_more(tmp_path: Path) -> None:
    from tests.devices.servers import served
    from tunefleet.compiler.toolchain.host import native_target
    from tunefleet.core.device import DeviceSpec, RpcAddress
    from tunefleet.core.placement import Link
    from tunefleet.devices import links, open_device

    probe = tmp_path / "probe.so"
    links.compile_probe(native_target(1), probe)
    here = links.connection_of(open_device(DeviceSpec(), 1), str(probe))
    assert (here.up, here.down) == (Link(), Link())
    with served() as server:
        device = open_device(DeviceSpec(rpc=RpcAddress("127.0.0.1", server.port)), 1)
        there = links.connection_of(device, str(probe))
        device.close()
    assert 1e6 < there.up.bytes_per_s < 1e12
    assert there.up.latency_s > 0 < there.down.latency_s
    assert there.arrival_s(64) > here.arrival_s(64)
