"""One job with a deadline among 20 others: the part `--one` of arrivals.py.

In each draw 21 jobs of recorded rounds arrive, and one of them has a deadline. It can be met where
any schedule of the simulator meets it: of a policy, of one that knows all durations and puts this
job first, or of `predictive` with all durations known.
"""

from __future__ import annotations

from typing import Any

import arrivals
import common

OTHERS = 20


def compared(sources: Any, seeds: range) -> tuple[dict[str, Any], list[common.Check]]:
    """Figures and checks: all jobs of one owner, and each of an owner of its own."""
    rows, checks = [], []
    for apart in (False, True):
        for devices in arrivals.DEVICES:
            runs = [
                arrivals.deadlines(sources, devices, seed, OTHERS + 1, 1, apart=apart)
                for seed in seeds
            ]
            can = sum(run["can"] for run in runs)
            met = {p: sum(run["met"][p] for run in runs) for p in arrivals.POLICIES}
            owners = OTHERS + 1 if apart else 1
            rows.append({"owners": owners, "devices": devices, "can": can, **met})
            common.table(rows[-1:], list(rows[0]))
            missed = sum(run["can"] - run["met"]["predictive"] for run in runs)
            checks.append(
                common.at_most(
                    f"{devices} devices, {owners} owners: missed of {can} that can be met",
                    missed,
                    0,
                    "aim" if apart else "condition",
                )
            )
    return {"rows": rows, "draws": len(seeds)}, checks
