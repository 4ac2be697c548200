"""What became of what was agreed, by what was measured."""

from __future__ import annotations

from typing import Any

import pytest
from tests.core.figures import BUSY, measured

from tunefleet.core.agreement import Agreed, AgreementOutcome, judge
from tunefleet.core.ids import digest
from tunefleet.core.result import MeasuredShape

#: Each shape of `measured` is twice as fast as its source framework.
TARGET, GAIN = Agreed(latency_ms=4.0), Agreed(speedup=2.0)


@pytest.mark.parametrize(
    ("text", "agreed", "shapes"),
    [
        ("met: 3.9 ms, at most 4 ms agreed", TARGET, [measured(3.9)]),
        ("not met: best so far 5 ms, at most 4 ms agreed", TARGET, [measured(3.0), measured(5.0)]),
        (f"not judged: at most 4 ms agreed: {BUSY}", TARGET, [measured(3.0, BUSY)]),
        (f"not judged: at most 4 ms agreed: {BUSY}", TARGET, [measured(3.0), measured(9.0, BUSY)]),
        ("not judged: at most 4 ms agreed: not measured end to end", TARGET, []),
        (
            "met: 2 times as fast as its source framework, at least 2 times agreed",
            GAIN,
            [measured(9.0)],
        ),
        (
            "not met: best so far 2 times as fast as its source framework, at least 2.5 times "
            "agreed",
            Agreed(speedup=2.5),
            [measured(9.0)],
        ),
        (f"not judged: at least 2 times agreed: {BUSY}", GAIN, [measured(3.0, BUSY)]),
        (
            "not judged: at least 2 times agreed: its source framework was not measured",
            GAIN,
            [MeasuredShape(tuned_ms=measured(3.0).tuned_ms)],
        ),
        (
            "not met: best so far 5 ms, at most 4 ms agreed",
            Agreed(latency_ms=4.0, speedup=2.0),
            [measured(5.0)],
        ),
    ],
)
def test_an_agreement_is_judged_on_what_is_delivered(
    text: str, agreed: Agreed, shapes: list[MeasuredShape]
) -> None:
    judged = judge(agreed, shapes, trials=8)
    assert judged is not None
    assert text == judged.text
    assert text.split(":")[0] == judged.outcome


def test_nothing_is_judged_where_nothing_was_agreed() -> None:
    assert judge(Agreed(), [measured(3.0)]) is None


@pytest.mark.parametrize(
    ("text", "difference"),
    [
        ("met: 3 ms, at most 4 ms agreed; differs by 0.001, at most 0.01 agreed", 1e-3),
        ("not met: best so far differs by 0.02, at most 0.01 agreed", 0.02),
    ],
)
def test_what_was_lost_counts(text: str, difference: float) -> None:
    judged = judge(Agreed(latency_ms=4.0, most_lost=0.01), [measured(3.0)], difference, trials=8)
    assert judged is not None
    assert text == judged.text


def test_records_alone_may_do() -> None:
    judged = judge(TARGET, [measured(3.0)], trials=0)
    assert judged is not None
    assert (judged.outcome, judged.is_met) == (AgreementOutcome.FROM_RECORDS, True)


def test_a_proof_counts_where_it_was_not_met() -> None:
    proof: dict[str, Any] = {"trials": 4, "impossible": "its deadline was too near"}
    missed, met = judge(TARGET, [measured(5.0)], **proof), judge(TARGET, [measured(3.0)], **proof)
    assert missed is not None
    assert met is not None
    told = "cannot be met: its deadline was too near; best so far 5 ms, at most 4 ms agreed"
    assert (told, AgreementOutcome.MET) == (missed.text, met.outcome)


@pytest.mark.parametrize(
    ("excess", "agreed", "shapes"),
    [
        (1.25, TARGET, [measured(5.0)]),
        (1.5, Agreed(speedup=3.0), [measured(5.0)]),
        (1.5, Agreed(latency_ms=4.0, speedup=3.0), [measured(5.0)]),
        (None, Agreed(latency_ms=4.0, speedup=3.0), [measured(5.0, BUSY)]),
        (None, TARGET, []),
    ],
)
def test_how_much_longer_than_agreed_it_takes(
    excess: float | None, agreed: Agreed, shapes: list[MeasuredShape]
) -> None:
    judged = judge(agreed, shapes, 0.5)
    assert judged is not None
    assert judged.excess == (None if excess is None else pytest.approx(excess))


def test_what_could_not_be_judged_is_judged_by_a_later_measurement() -> None:
    agreed = Agreed(latency_ms=4.0, speedup=1.5, most_lost=0.01)
    busy = judge(agreed, [measured(3.0, BUSY)], 1e-3, trials=0)
    assert busy is not None
    assert AgreementOutcome.NOT_JUDGED is busy.outcome
    assert judge(agreed, [measured(3.0)], 1e-3, trials=0) == busy.judged_again([measured(3.0)], 0)


def test_what_is_agreed_makes_another_job_and_nothing_agreed_the_same() -> None:
    nothing = digest([1, *Agreed().parts])
    assert digest([1]) == nothing
    others = {digest([1, *Agreed(speedup=s, most_lost=m).parts]) for s in (2, 3) for m in (1, 2)}
    assert len(others - {nothing}) == 4
    assert Agreed(speedup=2).parts == Agreed(speedup=2.0).parts


@pytest.mark.parametrize("value", [0, -1.0, float("nan"), float("inf"), "2"])
def test_what_is_no_positive_number_is_not_agreed(value: Any) -> None:
    with pytest.raises(ValueError, match="speedup"):
        Agreed(speedup=value)
