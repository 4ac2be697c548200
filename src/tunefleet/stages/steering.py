"""Which tasks of a job its pretrained cost model steers: those of a kind that it has learned.

A model that has seen float32 alone misleads searches of products of 8-bit integers: they end at
slower programs than without it (docs/benchmarks.md, search).
"""

from __future__ import annotations

from collections.abc import Sequence

from tunefleet.core.job import NOTHING_TO_TUNE, JobSpec
from tunefleet.core.precision import NUMBERS
from tunefleet.core.task import Task
from tunefleet.costmodel.card import Card
from tunefleet.costmodel.registry import Registry
from tunefleet.errors import InputError
from tunefleet.features.devices import Place
from tunefleet.hardware.llvm_names import ARM, GPU, X86

#: Of an id, what is shown.
_ID = 12
_CALLED = {X86: "x86 processors", ARM: "ARM processors", GPU: "GPUs"}


def steers(card: Card, spec: JobSpec, task: Task) -> bool:
    """Follows from what the job and the task are: whoever asks, and whenever, is told the same."""
    return card.has_learned(_architecture(spec), task.precision)


def remarks(models: Registry, spec: JobSpec, tasks: Sequence[Task]) -> tuple[str, ...]:
    """What the user should know before the search: that there is nothing to tune, that the
    pretrained model hides the one which comes with tunefleet, and what it does not steer."""
    wanted = spec.settings.search.pretrained
    if not tasks:
        return (f"{NOTHING_TO_TUNE}: it is delivered as it was imported",)
    if not wanted:
        return ()
    try:
        entry = models.get(wanted)
        hidden = None if models.is_shipped(entry) else models.shipped_of(entry.card.name)
    except InputError:  # the search needs it and says so; a result is told without
        return ()
    card = entry.card
    told = () if hidden is None else (_hides(card, hidden.card),)
    return (*told, *_unsteered(card, spec, tasks))


def _hides(card: Card, hidden: Card) -> str:
    return (
        f"the pretrained model {card.name} is version {card.id[:_ID]} of this home; the one that "
        f"comes with tunefleet steers by --pretrained {hidden.id[:_ID]}"
    )


def _unsteered(card: Card, spec: JobSpec, tasks: Sequence[Task]) -> tuple[str, ...]:
    if not card.learned:
        return (
            f"the pretrained model {card.name} steers every task: its card is of before cards told "
            "what a model has learned; train it again to have it steer what it knows",
        )
    without = [task for task in tasks if not steers(card, spec, task)]
    if not without:
        return ()
    return (
        f"{len(without)} of {len(tasks)} tasks are searched without the pretrained model "
        f"{card.name}: it has learned no programs {_unlearned(card, spec, without)}",
    )


def _unlearned(card: Card, spec: JobSpec, tasks: Sequence[Task]) -> str:
    here = _architecture(spec)
    if card.architectures and here not in card.architectures:
        return f"for {_CALLED.get(here, here)}"
    precisions = dict.fromkeys(task.precision for task in tasks)
    return f"on {' or '.join(NUMBERS.get(name, name) for name in precisions)}"


def _architecture(spec: JobSpec) -> str:
    return Place.of_job(spec.target, spec.device).architecture
