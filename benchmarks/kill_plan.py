"""When `kill_resume.py` strikes, and with which signal."""

from __future__ import annotations

import random
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from killing import PHASES, Blow, Command

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


@dataclass(frozen=True)
class Plan:
    """When to strike: `after_s` the command's beginning, or after a network reached `phase`."""

    blow: Blow
    after_s: float
    phase: str | None = None

    def due(self, command: Command) -> Callable[[], bool]:
        return lambda: command.reached(self.phase or PHASES[0], self.after_s)


class Draw:
    """Draws moments and signals: half of the moments over the whole command, half in the phase
    that was hit least. `lengths`: seconds of each phase, and of all, by number of networks."""

    def __init__(self, seed: int, lengths: dict[int, dict[str, float]]) -> None:
        self._lengths = lengths
        self._generator = random.Random(seed)

    def plan(self, kills: list[dict[str, Any]], networks: int) -> Plan:
        """`kills`: those until now."""
        generator, lengths = self._generator, self._lengths[networks]
        number = generator.choice(SIGNALS)
        # As a terminal sends them.
        to_all = number in (signal.SIGINT, signal.SIGHUP) and generator.random() < 0.5
        blow = Blow(number, group=to_all)
        if generator.random() < 0.5:
            return Plan(blow, generator.uniform(0.0, lengths["all"]))
        alike = [kill["phases"] for kill in kills if len(kill["networks"]) == networks]
        hits = Counter(phase for phases in alike for phase in set(phases))
        least = min(hits[phase] for phase in PHASES)
        phase = generator.choice([phase for phase in PHASES if hits[phase] == least])
        return Plan(blow, generator.uniform(0.0, lengths[phase]), phase)
