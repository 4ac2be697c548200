from __future__ import annotations

import math
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunefleet.core.placement import (
    Connection,
    Dataflow,
    Link,
    PlacementProblem,
    Tensor,
    best_placement,
    parts_of,
)

HERE = Connection()
SLOW = Connection(Link(1.0, 10.0), Link(2.0, 10.0), call_s=0.5)


def chain(*seconds: tuple[float, ...], size: int = 10) -> PlacementProblem:
    """Calls one after another, with tensors of one size between them."""
    count = len(seconds)
    tensors = [
        Tensor(size, i - 1 if i else None, (i,) if i < count else (), is_output=i == count)
        for i in range(count + 1)
    ]
    flow = Dataflow(tuple(f"call{i}" for i in range(count)), tuple(tensors))
    return PlacementProblem(flow, (HERE, SLOW)[: len(seconds[0])], seconds)


def test_a_tensor_goes_there_and_back_with_its_calls() -> None:
    cost = chain((1.0, 2.0), (1.0, 3.0)).cost((0, 1))
    # Up: 1 s and 10 bytes of 10 per second, and the call; down: 2 s and the bytes.
    assert (cost.kernels_s, cost.transfers_s) == (4.0, 2.5 + 3.0)


def test_a_tensor_that_two_calls_read_goes_there_once() -> None:
    tensors = (Tensor(10, None, (0, 1)), Tensor(10, 0, (), True), Tensor(10, 1, (), True))
    problem = PlacementProblem(Dataflow(("a", "b"), tensors), (HERE, SLOW), ((1.0, 1.0),) * 2)
    assert problem.cost((1, 1)).transfers_s == pytest.approx(2.5 + 2 * 3.0)


def test_a_task_moves_where_it_gains_more_than_its_transfers() -> None:
    assert best_placement(chain((1.0, 2.0), (9.0, 1.0), (1.0, 2.0))) == (0, 1, 0)
    assert best_placement(chain((1.0, 2.0), (6.0, 1.0), (1.0, 2.0))) == (0, 0, 0)


def test_what_runs_on_one_device_only_is_there() -> None:
    assert best_placement(chain((1.0, math.inf), (math.inf, 1.0))) == (0, 1)


def test_a_call_that_runs_nowhere_is_told() -> None:
    with pytest.raises(ValueError, match="call0 runs on no device"):
        chain((math.inf, math.inf))


def test_a_tensor_is_made_before_it_is_read() -> None:
    with pytest.raises(ValueError, match="read before it is written"):
        Dataflow(("a",), (Tensor(1, 0, (0,)),))


def test_a_long_network_is_placed_at_once() -> None:
    problem = chain(*((1.0 + i % 7, 4.0 - i % 3) for i in range(400)))
    assert problem.cost(best_placement(problem)).total_s <= problem.cost((0,) * 400).total_s


seconds = st.floats(0.1, 10.0) | st.just(math.inf)
links = st.builds(Link, st.floats(0.0, 2.0), st.floats(1.0, 50.0))
connections = st.builds(Connection, links, links, st.floats(0.0, 1.0))


@st.composite
def problems(draw: st.DrawFn, devices: int) -> PlacementProblem:
    count = draw(st.integers(1, 6))
    readers = [
        draw(st.sets(st.integers(maker + 1, count - 1)) if maker < count - 1 else st.just(set()))
        for maker in range(-1, count)
    ]
    tensors = [
        Tensor(
            draw(st.integers(0, 100)),
            None if maker < 0 else maker,
            tuple(sorted(to)),
            is_output=maker >= 0 and (not to or draw(st.booleans())),
        )
        for maker, to in enumerate(readers, -1)
    ]
    rows = [draw(st.tuples(*[seconds] * devices).filter(_runs_somewhere)) for _ in range(count)]
    flow = Dataflow(tuple(map(str, range(count))), tuple(tensors))
    reached = tuple(draw(connections) for _ in range(devices))
    return PlacementProblem(flow, reached, tuple(rows))


def _runs_somewhere(row: tuple[float, ...]) -> bool:
    return math.isfinite(min(row))


def by_trying_all(problem: PlacementProblem) -> float:
    devices = range(len(problem.connections))
    every = product(devices, repeat=len(problem.flow.calls))
    return min(problem.cost(chosen).total_s for chosen in every)


@given(problems(2))
def test_no_assignment_to_two_devices_is_faster(problem: PlacementProblem) -> None:
    total = problem.cost(best_placement(problem)).total_s
    assert total == pytest.approx(by_trying_all(problem))


@given(problems(3))
def test_three_devices_are_never_slower_than_the_best_of_them(problem: PlacementProblem) -> None:
    total = problem.cost(best_placement(problem)).total_s
    assert total <= problem.cost(problem.single(problem.best_single())).total_s
    assert total >= by_trying_all(problem) * (1 - 1e-9)


@given(problems(3), st.data())
def test_parts_run_every_call_once_and_in_order(
    problem: PlacementProblem, data: st.DataObject
) -> None:
    flow = problem.flow
    chosen = tuple(data.draw(st.integers(0, 2)) for _ in flow.calls)
    there = {n for n, tensor in enumerate(flow.tensors) if tensor.producer is None}
    ran: list[int] = []
    for part in parts_of(flow, chosen):
        assert {chosen[call] for call in part.calls} == {part.device}
        assert set(part.inputs) <= there
        there |= set(part.outputs)
        ran += part.calls
    assert sorted(ran) == list(range(len(flow.calls)))
    assert all(n in there for n, tensor in enumerate(flow.tensors) if tensor.is_output)


def test_parts_are_as_long_as_they_can_be() -> None:
    # Two branches, one on each device, that meet: not a change at every call.
    tensors = (
        Tensor(1, None, (0, 1)), Tensor(1, 0, (2,)), Tensor(1, 1, (3,)), Tensor(1, 2, (4,)),
        Tensor(1, 3, (4,)), Tensor(1, 4, (), True),
    )  # fmt: skip
    parts = parts_of(Dataflow(tuple("abcde"), tensors), (0, 1, 0, 1, 0))
    assert [(part.device, part.calls) for part in parts] == [(1, (1, 3)), (0, (0, 2, 4))]
