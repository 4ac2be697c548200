from __future__ import annotations

from tunefleet.core.task import Task
from tunefleet.stages.similarity import distance, nearest
from tunefleet.store import BestRecord


def task(shapes: str) -> Task:
    return Task("own", "conv2d", "conv2d", shapes, 1.0, "")


def best_record(name: str, shapes: str) -> BestRecord:
    return BestRecord(name, shapes, 1.0, "trace", 1e-3)


def test_distance_is_of_ratios() -> None:
    assert distance([[8, 3]], [[8, 3]]) == 0.0
    assert distance([[8, 2]], [[4, 16]]) == 10**0.5


def test_the_most_similar_come_first_and_no_more_than_asked() -> None:
    own = task("1x56x56x64 3x3x64x64 -> 1x56x56x64")
    near = best_record("near", "1x56x56x64 3x3x64x128 -> 1x56x56x128")
    far = best_record("far", "1x7x7x512 3x3x512x512 -> 1x7x7x512")
    assert nearest(own, [far, near], 9) == [near, far]
    assert nearest(own, [far, near], 1) == [near]


def test_tasks_with_other_arguments_are_not_similar() -> None:
    own = task("1x56x56x64 3x3x64x64 -> 1x56x56x64")
    others = ["1x56x56x64 3x3x64x64 1x1x1x64 -> 1x56x56x64", "56x64 3x3x64x64 -> 1x56x56x64"]
    assert nearest(own, [best_record(shapes, shapes) for shapes in others], 9) == []


def test_a_scalar_argument_is_no_obstacle() -> None:
    assert nearest(task("8 scalar -> 8"), [best_record("a", "16 scalar -> 16")], 9)
