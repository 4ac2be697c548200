"""What is agreed of a job: how fast the network has to be that it delivers, and how near to its
source framework. Judged on what is delivered, by what was measured of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from tunefleet.core.numbers import positive

if TYPE_CHECKING:
    from tunefleet.core.result import MeasuredShape

_UNMEASURED = "not measured end to end"


class AgreementOutcome(StrEnum):
    """FROM_RECORDS: no trial of its own was needed. IMPOSSIBLE: it was proven before the search."""

    MET = "met"
    FROM_RECORDS = "met from records"
    NOT_MET = "not met"
    IMPOSSIBLE = "cannot be met"
    NOT_JUDGED = "not judged"


class TermKind(StrEnum):
    """What is agreed: milliseconds at most of an inference, how many times as fast as the source
    framework it is at least, how far its outputs are at most from that one's."""

    LATENCY = "latency"
    SPEEDUP = "speed-up"
    LOSS = "loss"


@dataclass(frozen=True, slots=True)
class Agreed:
    """What a user agrees on beside a budget, in the units of `TermKind`; None where nothing."""

    latency_ms: float | None = None
    speedup: float | None = None
    most_lost: float | None = None

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if value is not None:
                object.__setattr__(self, each.name, positive(each.name, value))

    @property
    def parts(self) -> list[dict[str, float]]:
        """What tells it from others, for fingerprints: nothing where nothing is agreed."""
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        return [known] if (known := {k: v for k, v in given.items() if v is not None}) else []


NOTHING_AGREED = Agreed()


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One thing that was agreed, beside what is `delivered`: None where that could not be measured,
    for the reason in `why_not_judged`."""

    kind: TermKind
    agreed: float
    delivered: float | None = None
    why_not_judged: str | None = None

    @property
    def excess(self) -> float | None:
        """How many times as much as agreed it is: more than 1 where it is not met."""
        if self.delivered is None:
            return None
        if self.kind is TermKind.SPEEDUP:
            return self.agreed / self.delivered if self.delivered else float("inf")
        return self.delivered / self.agreed

    def __str__(self) -> str:
        """`1.92 ms, at most 2 ms agreed`."""
        match self.kind:
            case TermKind.LATENCY:
                form, bound = "{:.3g} ms", "at most {:.3g} ms agreed"
            case TermKind.SPEEDUP:
                form = "{:.3g} times as fast as its source framework"
                bound = "at least {:.3g} times agreed"
            case TermKind.LOSS:
                form, bound = "differs by {:.2g}", "at most {:.2g} agreed"
        if self.delivered is None:
            return f"{bound.format(self.agreed)}: {self.why_not_judged}"
        return f"{form.format(self.delivered)}, {bound.format(self.agreed)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedAgreement:
    """What became of an agreement: `text` is its outcome as a sentence."""

    outcome: AgreementOutcome
    text: str
    terms: tuple[Term, ...] = ()

    @property
    def is_met(self) -> bool:
        return self.outcome in (AgreementOutcome.MET, AgreementOutcome.FROM_RECORDS)

    @property
    def excess(self) -> float | None:
        """How many times as much as agreed an inference takes, by the worst of its terms; None
        where one of them could not be judged."""
        speeds = [t.excess for t in self.terms if t.kind is not TermKind.LOSS]
        known = [each for each in speeds if each is not None]
        return max(known) if known and len(known) == len(speeds) else None

    def judged_again(self, shapes: Sequence[MeasuredShape], trials: int) -> JudgedAgreement:
        """With the figures of a later measurement."""
        agreed = {term.kind: term.agreed for term in self.terms}
        asked = Agreed(*map(agreed.get, (TermKind.LATENCY, TermKind.SPEEDUP, TermKind.LOSS)))
        difference = next((t.delivered for t in self.terms if t.kind is TermKind.LOSS), None)
        return judge(asked, shapes, difference, trials=trials) or self


def judge(
    agreed: Agreed,
    shapes: Sequence[MeasuredShape],
    difference: float | None = None,
    *,
    trials: int | None = None,
    impossible: str = "",
) -> JudgedAgreement | None:
    """What became of what was agreed; None where nothing was.

    `shapes` is empty where nothing was measured; with several the slowest counts. `difference` is
    that of what is delivered. `trials` are those of the job; `impossible` is the proof that it
    could not be met, which counts where it was not.
    """
    terms = _terms(agreed, shapes, difference)
    if not terms:
        return None
    open_terms = [term for term in terms if term.excess is None]
    missed = [term for term in terms if term.excess is not None and term.excess > 1]
    told = "; ".join(map(str, missed or open_terms or terms))
    if missed and impossible:
        outcome, text = AgreementOutcome.IMPOSSIBLE, f"{impossible}; best so far {told}"
    elif missed:
        outcome, text = AgreementOutcome.NOT_MET, f"best so far {told}"
    elif open_terms:
        outcome, text = AgreementOutcome.NOT_JUDGED, told
    else:
        outcome = AgreementOutcome.FROM_RECORDS if trials == 0 else AgreementOutcome.MET
        text = told
    return JudgedAgreement(outcome=outcome, text=f"{outcome}: {text}", terms=terms)


def _terms(
    agreed: Agreed, shapes: Sequence[MeasuredShape], difference: float | None
) -> tuple[Term, ...]:
    terms = []
    if agreed.latency_ms is not None:
        latencies = [(s.tuned_ms.median if s.tuned_ms else None, s.why_disturbed) for s in shapes]
        terms.append(_term(TermKind.LATENCY, agreed.latency_ms, latencies))
    if agreed.speedup is not None:
        gains = [_gain(shape) for shape in shapes]
        terms.append(_term(TermKind.SPEEDUP, agreed.speedup, gains))
    if agreed.most_lost is not None:
        differences = [(difference, None)]
        terms.append(_term(TermKind.LOSS, agreed.most_lost, differences))
    return tuple(terms)


def _term(kind: TermKind, agreed: float, figures: Sequence[tuple[float | None, Any]]) -> Term:
    """By the worst of figures, each with why it is not to be judged."""
    known = [figure for figure, why in figures if figure is not None and not why]
    if not known or len(known) < len(figures):
        reasons = [why for _, why in figures if why]
        return Term(kind=kind, agreed=agreed, why_not_judged=(reasons or [_UNMEASURED])[0])
    worst = min(known) if kind is TermKind.SPEEDUP else max(known)
    return Term(kind=kind, agreed=agreed, delivered=worst)


def _gain(shape: MeasuredShape) -> tuple[float | None, str | None]:
    """The speed-up over the source framework, and why there is none."""
    for baseline in shape.baselines:
        if baseline.kind == "source":
            gain = baseline.speedup
            return (gain.median if gain else None), baseline.why_no_speedup
    return None, "its source framework was not measured"
