"""The cheapest way to divide the nodes of a graph between two sides: a minimum cut."""

from __future__ import annotations

from collections import deque


class CutGraph:
    """Directed edges with capacities. Nodes are numbers that `node` gives; `SOURCE` and `SINK` are
    there from the start and end on different sides."""

    SOURCE, SINK = 0, 1

    def __init__(self) -> None:
        # Capacities that are left, by node and neighbour.
        self._left: list[dict[int, float]] = [{}, {}]

    def node(self) -> int:
        self._left.append({})
        return len(self._left) - 1

    def edge(self, begin: int, end: int, capacity: float) -> None:
        """What it costs when `begin` is on the source's side and `end` on the sink's. It is added
        to what an edge there costs already."""
        self._left[begin][end] = self._left[begin].get(end, 0.0) + capacity
        self._left[end].setdefault(begin, 0.0)

    def source_side(self) -> set[int]:
        """The nodes on the source's side of a cheapest cut (Ford and Fulkerson, with the shortest
        paths of Edmonds and Karp). It may be asked for once: the capacities are used up.

        Some cut must cost less than infinity.
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
        """What has a way left from the source, each with the node before it."""
        before = {self.SOURCE: self.SOURCE}
        waiting = deque([self.SOURCE])
        while waiting and self.SINK not in before:
            begin = waiting.popleft()
            for end, left in self._left[begin].items():
                if left > 0.0 and end not in before:
                    before[end] = begin
                    waiting.append(end)
        return before
