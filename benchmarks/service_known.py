"""How long is the answer to an agreement that earlier jobs' programs meet, by HTTP?

`tunefleet serve --http` tunes a network with a few trials of each task. Then the same user asks for
the network with a latency that this reached, and a little more each time, so that each is a job of
its own. Only a measurement that nothing disturbed can meet an agreement: run it alone. The time is
from the request to the job's end, as a client sees it.

    .venv/bin/python benchmarks/service_known.py --json out.json
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import common
from kill_service import KilledService
from service_load import token_of
from tunefleet.client import Client
from tunefleet.store import open_store

#: Times that the agreement is asked for, and what is agreed of what was reached.
_ASKED, _SLACK = 5, 1.5
_MOST_S = 5.0


def main(options: argparse.Namespace) -> int:
    started = time.time()
    network = "zoo:tiny_cnn" if options.quick else options.network
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TMPDIR"] = folder
        home = Path(folder, "home")
        home.mkdir()
        with closing(open_store(home)) as store:
            token = token_of(store, "ann")
        service = KilledService(home)
        try:
            rows = asked(Client(f"http://127.0.0.1:{service.port}", token), network, options.trials)
        finally:
            service.kill()
    common.table(rows, list(rows[-1]))
    slowest = max(row["answered_s"] for row in rows[2:])
    others = sum(row["outcome"] != "met from records" or row["trials"] > 0 for row in rows[1:])
    checks = [
        common.at_most("slowest warm answer, s", slowest, _MOST_S, "condition"),
        common.at_most("answers not met from records", others, 0, "condition"),
    ]
    return common.finish("service_known", started, {"rows": rows}, checks, options.json)


def asked(client: Client, network: str, trials: int) -> list[dict[str, Any]]:
    """The search, the first answer from its records, and the warm ones."""
    rows: list[dict[str, Any]] = []
    budget = {"trials_per_task": trials}
    with client:
        for number in range(_ASKED + 1):
            agreement = {}
            if rows:
                agreement = {"latency_ms": (_SLACK + 0.1 * number) * rows[0]["latency_ms"]}
            began = time.perf_counter()
            view = client.submit(network, budget=budget, agreement=agreement, threads=1)
            ended = client.wait(view["id"])
            rows.append(
                {
                    "asked_for": "a search" if not number else "an agreement",
                    "answered_s": time.perf_counter() - began,
                    "state": ended["state"],
                    "outcome": ended["outcome"],
                    "trials": ended["trials"],
                    "latency_ms": ended["latency_ms"],
                    "steps_s": (ended["result"] or {}).get("wall"),
                }
            )
            print(rows[-1], flush=True)
    return rows


if __name__ == "__main__":
    made = common.parser("An agreement met from records, by HTTP.")
    made.add_argument("--network", default="zoo:resnet50")
    made.add_argument("--trials", type=int, default=4, help="trials of each task of the search")
    common.run(main, made)
