"""The Store contract on steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tunefleet.core.network import Footprint, NetworkInfo, SegmentCopies
from tunefleet.core.step import (
    Checked,
    Comparison,
    Compiled,
    Finalist,
    Finalists,
    Imported,
    Measured,
    Published,
    Remark,
    SegmentInfo,
    SourceMeasured,
    SplitTasks,
    StepKey,
    StepKind,
    StepResult,
    StepRun,
    Verified,
    Winners,
)
from tunefleet.core.trial import Built
from tunefleet.errors import InternalError

from . import values as v

_BUILT = Built("c", "0f.so", (((1, 2), "float32"),), 0.5)
RESULTS: dict[StepKind, StepResult] = {
    StepKind.SPLIT: SplitTasks((v.make_task(),)),
    StepKind.IMPORT: Imported(
        NetworkInfo("net", "onnx", "d", (), (), constants=(("sr", (1.0,)),)),
        (v.make_task(), v.make_task("u")),
        Footprint(3, 4),
        "float32",
        "ONNX Runtime",
        ({"kind": "onnx", "inputs": [["x", [1], "float32"]]},),
        (SegmentInfo(("Cast c",), "text", "ONNX Runtime"),),
        "folder",
        "file.npz",
        copies=SegmentCopies(1, 4, 2, None),
    ),
    StepKind.CHECK: Checked(1e-6, 1e-3, True, "file.npz", ("a caveat",), None),
    StepKind.BASELINE: SourceMeasured((Comparison({"source": (0.1, 0.2)}, 0.5),)),
    StepKind.BUILD_FINALISTS: Finalists((("t", (Finalist("c", _BUILT),), _BUILT),)),
    StepKind.SELECT_WINNERS: Winners(3),
    StepKind.COMPILE: Compiled("folder"),
    StepKind.VERIFY: Verified(1e-7, "slower"),
    StepKind.PUBLISH: Published("run"),
    StepKind.MEASURE: Measured((Comparison({"tuned": (0.1, 0.2)}, 0.0),), {"k": 1e-3}, 99.5),
}


def step(kind: StepKind, owner: str = "o", started_at: float = 100.0) -> StepRun:
    remarks = (Remark("so", True), Remark("and so"))
    return StepRun(StepKey(owner, kind), RESULTS[kind], started_at, 2.0, remarks, "host", 2)


class StepLog:
    @pytest.mark.parametrize("kind", StepKind)
    def test_a_step_reads_back_as_it_was_committed(self, store: Any, kind: StepKind) -> None:
        run = step(kind)
        assert store.work.step(run.key) is None
        assert store.work.commit_step(run)
        found = store.work.step(run.key)
        assert run == found
        assert run.remarks == found.remarks

    def test_the_first_commit_of_a_step_wins(self, store: Any) -> None:
        first = step(StepKind.VERIFY)
        store.work.commit_step(first)
        assert not store.work.commit_step(replace(first, result=Verified(0.5)))
        assert first == store.work.step(first.key)

    def test_a_step_that_is_made_again_takes_its_place(self, store: Any) -> None:
        first = step(StepKind.COMPILE)
        again = replace(first, result=Compiled("another"), attempt=3)
        store.work.commit_step(first)
        assert store.work.commit_step(again, again=True)
        assert [again] == store.work.steps("o")

    def test_steps_are_those_of_their_owner_in_the_order_of_commit(self, store: Any) -> None:
        for kind, owner in ((StepKind.CHECK, "o"), (StepKind.IMPORT, "p"), (StepKind.IMPORT, "o")):
            store.work.commit_step(step(kind, owner))
        assert [r.key.kind for r in store.work.steps("o")] == [StepKind.CHECK, StepKind.IMPORT]
        assert store.work.steps("nobody") == []

    def test_what_is_forgotten_may_be_committed_again(self, store: Any) -> None:
        store.work.commit_step(step(StepKind.IMPORT))
        store.work.commit_step(step(StepKind.IMPORT, "p"))
        store.work.forget_steps("o")
        store.work.forget_steps("nobody")
        assert store.work.steps("o") == []
        assert len(store.work.steps("p")) == 1
        assert store.work.commit_step(step(StepKind.IMPORT))

    def test_another_result_is_our_bug(self, store: Any) -> None:
        with pytest.raises(InternalError, match="was committed with a Winners"):
            store.work.commit_step(replace(step(StepKind.VERIFY), result=Winners(1)))
