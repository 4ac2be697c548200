"""One command for this processor, an emulated GPU and a server of another kind, as a program that
`test_gpu.py` runs with an emulated driver. Writes what it saw as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.devices import servers
from tests.fleet.jobs import SETTINGS


def main(home: Path) -> list[dict[str, Any]]:
    import tunefleet
    from tunefleet.core.device import DeviceSpec, RegisteredDevice, RpcAddress
    from tunefleet.core.events import StageStarted
    from tunefleet.core.home import Home
    from tunefleet.core.stage import StageKind
    from tunefleet.devices import open_device
    from tunefleet.devices.registry import DeviceRegistry

    with servers.another_board(home) as server:
        spec = DeviceSpec(rpc=RpcAddress("127.0.0.1", server.port))
        device = open_device(spec, 1)
        DeviceRegistry(Home(home).devices).add(
            RegisteredDevice("board", spec, device.describe(), 0.0)
        )
        device.close()
        names = ("local", "cuda:0", "board")
        events: list[list[Any]] = [[] for _ in names]
        outcomes = tunefleet.tune(
            ["zoo:tiny_cnn"],
            context=tunefleet.BenchmarkContext(device=names, threads=1, home=home),
            observer=lambda index: events[index].append,
            trials=4,
            settings=SETTINGS,
        )
    return [
        {
            "device": outcome.device,
            "error": str(outcome.error or ""),
            "name": outcome.result.device.name if outcome.result and outcome.result.device else "",
            "trials": outcome.result.trials if outcome.result else 0,
            "verified": outcome.result.verified if outcome.result else False,
            "target": outcome.result.target if outcome.result else "",
            "measured_on": sorted(
                {
                    event.resource_id
                    for event in seen
                    if isinstance(event, StageStarted) and event.key.kind is StageKind.PROFILE
                }
            ),
        }
        for outcome, seen in zip(outcomes, events, strict=True)
    ]


if __name__ == "__main__":
    home = Path(sys.argv[1])
    (home / "seen.json").write_text(json.dumps(main(home)), encoding="utf-8")
