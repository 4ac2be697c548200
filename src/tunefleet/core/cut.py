"""Minimum cut of a graph between a source and a sink."""

from __future__ import annotations

from collections import deque


class CutGraph:
    """A directed graph with edge capacities. `node` creates nodes, which are integers; `SOURCE` and
    `SINK` always exist."""

    SOURCE, SINK = 0, 1

    def __init__(self) -> None:
        # Residual capacities by node and neighbour.
        self._left: list[dict[int, float]] = [{}, {}]

    def node(self) -> int:
        self._left.append({})
        return len(self._left) - 1

    def edge(self, begin: int, end: int, capacity: float) -> None:
        """Add to the cost of having `begin` on the source's side and `end` on the sink's side."""
        self._left[begin][end] = self._left[begin].get(end, 0.0) + capacity
        self._left[end].setdefault(begin, 0.0)

    def source_side(self) -> set[int]:
        """The nodes on the source's side of a minimum cut (Ford-Fulkerson with the shortest paths
        of Edmonds and Karp). Call it once only: it consumes the capacities.

        At least one cut must have a finite cost.
        """
        while True:
            before = self._reached()
            if self.SINK not in before:
                return set(before)
            path = [self.SINK]
            while path[-1] != self.SOURCE:
                path.append(before[path[-1]])
            steps = list(zip(path[1:], path[:-1], strict=True))
            flow = min(self._left[begin][end] for begin, end in steps)
            for begin, end in steps:
                self._left[begin][end] -= flow
                self._left[end][begin] += flow

    def _reached(self) -> dict[int, int]:
        """Nodes reachable from the source in the residual graph, each with its predecessor."""
        before = {self.SOURCE: self.SOURCE}
        waiting = deque([self.SOURCE])
        while waiting and self.SINK not in before:
            begin = waiting.popleft()
            for end, left in self._left[begin].items():
                if left > 0.0 and end not in before:
                    before[end] = begin
                    waiting.append(end)
        return before
