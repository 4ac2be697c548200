"""Where a block may be computed, as TVM says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.tvm


@pytest.fixture(scope="module")
def padded(tiny: Any, target: Any) -> list[tuple[Any, Any]]:
    """(module, trace) of each sketch with a location, of two depthwise convolutions of 8 x 8 and of
    7 x 7: of a prime number of steps all parts of a tile but one are 1."""
    from tunefleet.compiler.graph.forms import forms
    from tunefleet.compiler.space.spaces import tune_contexts
    from tunefleet.compiler.toolchain.programs import load_program
    from tunefleet.stages.importing import import_network

    found = []
    for tasks in (tiny.tasks, import_network("zoo:tiny_cnn?size=14", target).tasks):
        (program,) = (w.task.program for w in tasks if "3x3x1x16" in w.task.shapes)
        for form in forms(load_program(program)):
            for context in tune_contexts(form, target):
                for schedule in context.generate_design_space():
                    found.append((form, schedule.trace.simplified(remove_postproc=True)))
    return [(form, trace) for form, trace in found if "location" in str(trace)]


@pytest.fixture
def unopened(monkeypatch: pytest.MonkeyPatch) -> Any:
    from tunefleet.compiler.space import sketching

    monkeypatch.setattr(sketching, "_verdicts", {})
    return sketching


def test_valid_locations_are_tvms(padded: list[tuple[Any, Any]], unopened: Any) -> None:
    for module, trace in padded:
        sketch = unopened.open_sketch(module, trace)
        index, location = next(
            (i, c) for i, c in enumerate(sketch.choices) if isinstance(c, unopened.Location)
        )
        position = sketch.positions[index]
        picks = sketch.sample(12, np.random.default_rng(0))
        valid = location.valid(sketch.values(picks))
        for program, of_program in zip(picks, valid, strict=True):
            decisions = {i: d for i, d in sketch.decisions(program).items() if i != position}
            said = unopened._Probe(module, trace, decisions, 1, asks=True).nests[position].valid
            assert tuple(location.options[of_program, 0]) == said


def test_what_was_opened_before_changes_nothing(
    padded: list[tuple[Any, Any]], unopened: Any
) -> None:
    def opened() -> list[Any]:
        sketch = unopened.open_sketch(*padded[-1])
        (location,) = (c for c in sketch.choices if isinstance(c, unopened.Location))
        return [location.options, location.tile, location.part, location.reduces]

    first = opened()
    unopened._verdicts.clear()
    for module, trace in padded[: len(padded) // 2]:
        unopened.open_sketch(module, trace)
    known = len(unopened._verdicts)
    after = opened()
    assert known == len(unopened._verdicts) == len(padded) // 2
    for one, other in zip(first, after, strict=True):
        np.testing.assert_array_equal(one, other)
