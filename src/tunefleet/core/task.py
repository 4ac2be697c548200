"""One tunable operator subgraph of a network with fixed shapes on a target."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Task:
    """`task_id` is the structural hash of the program together with the target.

    `program` is the serialised program (TVM JSON), which only the compiler package reads. `flops`
    are those of one execution. `operator` is the anchor operator (conv2d, matmul, add, ...).
    `precision` is its precision (`core.precision.precision_of`), "" in tasks that earlier versions
    stored.
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
    """The weights among a task's arguments: `arguments` are their indices.

    `between` is the number of bytes of weights, those of the whole network, that pass through the
    caches between two runs of the task.
    """

    arguments: tuple[int, ...] = ()
    between: int = 0


def rank(tasks: list[WeightedTask]) -> list[WeightedTask]:
    """Sort by share of the network's FLOPs, largest first; names break ties."""
    return sorted(tasks, key=lambda t: (-t.total_flops, t.task.name, t.task.task_id))
