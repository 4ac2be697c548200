"""The Store contract on what was learned in the background."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tunefleet.store import Learning, LearningOutcome

FIRST = Learning(
    tenant="ann",
    at=1.0,
    outcome=LearningOutcome.NO_WORSE,
    parent="p",
    model="m",
    in_use="m",
    jobs=("1", "2"),
    records=40,
    held_back=4,
    before={"pca": 0.5},
    after={"pca": 0.6},
    reason="\udcff",
)


class Learned:
    def test_learnings_come_newest_first(self, store: Any) -> None:
        second = replace(FIRST, at=2.0, outcome=LearningOutcome.WORSE, jobs=("3",))
        for each in (FIRST, replace(FIRST, tenant="bob"), second):
            store.explorer.add_learning(each)
        assert store.explorer.learnings("ann", 5) == [second, FIRST]
        assert store.explorer.learnings("ann", 1) == [second]
        assert store.explorer.learnings("", 5) == []

    def test_a_job_is_learned_once_for_each_tenant(self, store: Any) -> None:
        for each in (FIRST, replace(FIRST, jobs=("2", "3")), replace(FIRST, jobs=())):
            store.explorer.add_learning(each)
        assert store.explorer.learned("ann", ("1", "3", "4")) == {"1", "3"}
        assert store.explorer.learned("bob", ("1", "3", "4")) == set()

    def test_one_learns_from_those_who_share(self, store: Any) -> None:
        assert store.explorer.owners("ann") == {"ann"}
        store.accounts.share("bob", "ann", True)
        store.accounts.share("carl", "*", True)
        assert store.explorer.owners("ann") == {"ann", "bob", "carl"}
        assert store.explorer.owners("") == {"", "carl"}
