"""One tunable operator subgraph of a network with fixed shapes on a target."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Task:
    """`task_id` is the structural hash of the program together with the target.

    `program` is the serialised program (TVM JSON); only the compiler room reads it. `flops` are
    those of one execution. `operator` is the anchor operator (conv2d, matmul, add, ...).
    `precision` is what it computes in (`core.precision.precision_of`), "" where an earlier version
    stored it.
    """

    task_id: str
    name: str
    operator: str
    shapes: str
    flops: float
    program: str
    precision: str = ""

    def __post_init__(self) -> None:
        if self.flops < 0:
            raise ValueError(f"{self.name}: negative FLOPs")


@dataclass(frozen=True, slots=True)
class WeightedTask:
    """A task of a network with the number of times the network runs it."""

    task: Task
    weight: int

    def __post_init__(self) -> None:
        if self.weight < 1:
            raise ValueError(f"{self.task.name}: weight {self.weight} is not positive")

    @property
    def total_flops(self) -> float:
        return self.task.flops * self.weight


@dataclass(frozen=True, slots=True)
class TaskWeights:
    """What a task reads of the network's weights: `arguments` are their indices.

    From one run of the task to the next `between` bytes of weights, those of the whole network,
    pass through the caches.
    """

    arguments: tuple[int, ...] = ()
    between: int = 0


def rank(tasks: list[WeightedTask]) -> list[WeightedTask]:
    """By share of the network's FLOPs, largest first; names break ties, so order is stable."""
    return sorted(tasks, key=lambda t: (-t.total_flops, t.task.name, t.task.task_id))
