"""The time that a job only waited: for other jobs or other commands, while none of its stages
worked."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

#: Any stage waits for so many seconds: to be committed, and to be reported.
_LEAST_S = 0.1


class WaitingTime:
    """Adds up the waiting of a job's stages. `began` is called when a stage is given to a resource,
    `ended` when it ends, in the order of time, in seconds of any one clock. A stage waits for other
    commands first, then it works; a job none of whose stages is given waits for other jobs, from
    `since` on."""

    def __init__(self, since: float) -> None:
        self._out: dict[Hashable, float] = {}
        self._since = since
        #: When a stage worked, and what was counted before.
        self._passed: list[tuple[float, float]] = []

    def began(self, stage: Hashable, at: float) -> float:
        """Seconds in which no stage was given until now."""
        waited = 0.0 if self._out else at - self._since
        self._out[stage] = at
        return waited if waited >= _LEAST_S else 0.0

    def ended(self, stage: Hashable, at: float, worked_s: float | None) -> float:
        """Seconds of waiting that are certain by now and were not before. `worked_s` is None of a
        stage that is not known to have waited; those that are still out may work."""
        began = self._out.pop(stage, at)
        self._since = at
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
