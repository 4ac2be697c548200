"""The time that a job only waited: its stages waited for another command, and none worked."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

#: Any stage waits for so many seconds: to be committed, and to be reported.
_LEAST_S = 0.1


class WaitingTime:
    """Adds up the waiting of a job's stages. `began` is called when a stage is given to a resource,
    `ended` when it ends, in the order of time, in seconds of any one clock. A stage waits first,
    then it works."""

    def __init__(self) -> None:
        self._out: dict[Hashable, float] = {}
        #: When a stage worked, and what was counted before.
        self._passed: list[tuple[float, float]] = []

    def began(self, stage: Hashable, at: float) -> None:
        self._out[stage] = at

    def ended(self, stage: Hashable, at: float, worked_s: float | None) -> float:
        """Seconds of waiting that are certain by now and were not before. `worked_s` is None of a
        stage that is not known to have waited; those that are still out may work."""
        began = self._out.pop(stage, at)
        works = began if worked_s is None else max(began, at - worked_s)
        if works - began < _LEAST_S:
            works = began
        out = [(since, at) for since in self._out.values()]
        waited = _without((began, works), [*self._passed, *out])
        oldest = min(self._out.values(), default=at)
        passed = [*self._passed, (works, at), *waited]
        self._passed = [span for span in passed if span[1] > oldest]
        return sum(end - begin for begin, end in waited)


def _without(
    span: tuple[float, float], taken: Iterable[tuple[float, float]]
) -> list[tuple[float, float]]:
    """The parts of a span in which none of the others lies."""
    parts = [span]
    for begin, end in taken:
        cut = [(each[0], min(each[1], begin)) for each in parts]
        cut += [(max(each[0], end), each[1]) for each in parts]
        parts = [part for part in cut if part[0] < part[1]]
    return parts
