"""Divides a graph into parts that are compiled and parts that stay in ONNX Runtime.

The nodes that stay form as few parts as possible: parts alternate along every path, and all nodes
of one kind at the same depth of alternation are one part, connected or not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Wiring:
    """What one node reads and writes, and whether computing it elsewhere would cost next to
    nothing."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    cheap: bool = False


@dataclass(frozen=True, slots=True)
class GraphPart:
    """Nodes by their index, in an order in which they can run, that are on one side."""

    outside: bool
    nodes: tuple[int, ...]


def cut(
    nodes: Sequence[Wiring], outside: Collection[int], uncrossable: Collection[str]
) -> list[GraphPart]:
    """The parts of a graph in an order in which they can run.

    `nodes` are in such an order already. Those of `outside` stay in ONNX Runtime, with cheap ones
    between them; values of `uncrossable` never leave a part.
    """
    graph = _Graph(nodes)
    chosen = set(outside) | graph.touching(uncrossable)
    glued = graph.edges_of(uncrossable)
    chosen |= graph.between(glued) | graph.cheap_bridges(chosen)
    levels = graph.levels(chosen, glued)
    if levels is None:
        return [GraphPart(True, tuple(range(len(nodes))))]
    return [
        GraphPart(bool(level % 2), tuple(i for i, at in enumerate(levels) if at == level))
        for level in sorted(set(levels))
    ]


Edge = tuple[int, int]


class _Graph:
    def __init__(self, nodes: Sequence[Wiring]) -> None:
        self._nodes = nodes
        producer = {name: index for index, node in enumerate(nodes) for name in node.outputs}
        self._producer = producer
        self._sources = [
            sorted({producer[name] for name in node.inputs if name in producer}) for node in nodes
        ]
        self._users: list[list[int]] = [[] for _ in nodes]
        for index, sources in enumerate(self._sources):
            for source in sources:
                self._users[source].append(index)

    def touching(self, names: Collection[str]) -> set[int]:
        """The nodes that read or write one of these values."""
        return {
            index
            for index, node in enumerate(self._nodes)
            if any(name in names for name in (*node.inputs, *node.outputs))
        }

    def edges_of(self, names: Collection[str]) -> list[Edge]:
        """Producer and user of every one of these values."""
        return [
            (self._producer[name], index)
            for index, node in enumerate(self._nodes)
            for name in node.inputs
            if name in names and name in self._producer
        ]

    def between(self, edges: Iterable[Edge]) -> set[int]:
        """The nodes on paths from a producer to its user: they cannot be in another part."""
        nodes: set[int] = set()
        for source, user in edges:
            nodes |= self._after({source}) & self._before({user})
        return nodes

    def cheap_bridges(self, outside: set[int]) -> set[int]:
        """Nodes that lie between outside nodes and are not worth the crossing."""
        inner = (self._after(outside) & self._before(outside)) - outside
        bridges: set[int] = set()
        for group in self._connected(inner):
            if all(self._nodes[index].cheap for index in group):
                bridges |= group
        return bridges

    def levels(self, outside: set[int], glued: Sequence[Edge]) -> list[int] | None:
        """The depth of alternation of each node, odd where it is outside; None where glued nodes
        cannot be brought to one depth."""
        least = [index in outside for index in range(len(self._nodes))]
        lowest = [int(odd) for odd in least]
        while True:
            levels: list[int] = []
            for index, sources in enumerate(self._sources):
                level = lowest[index]
                for source in sources:
                    level = max(level, levels[source])
                levels.append(level + (level % 2 != int(least[index])))
            late = [(source, user) for source, user in glued if levels[source] < levels[user]]
            if not late:
                return levels
            if max(levels) > 2 * len(levels) + 2:
                return None
            for source, user in late:
                lowest[source] = max(lowest[source], levels[user])

    def _after(self, nodes: set[int]) -> set[int]:
        return _reached(nodes, self._users)

    def _before(self, nodes: set[int]) -> set[int]:
        return _reached(nodes, self._sources)

    def _connected(self, nodes: set[int]) -> list[set[int]]:
        """Groups of these nodes that are connected among themselves."""
        left = set(nodes)
        groups = []
        while left:
            start = left.pop()
            group = {start}
            stack = [start]
            while stack:
                index = stack.pop()
                near = {*self._sources[index], *self._users[index]} & left
                left -= near
                group |= near
                stack += near
            groups.append(group)
        return groups


def _reached(start: set[int], neighbours: Sequence[Sequence[int]]) -> set[int]:
    """What can be reached from nodes, these not counted unless they lie on the way."""
    reached: set[int] = set()
    stack = [near for index in start for near in neighbours[index]]
    while stack:
        index = stack.pop()
        if index not in reached:
            reached.add(index)
            stack += neighbours[index]
    return reached
