"""Search spaces by kind of target: which schedules of a task exist at all.

A space consists of families of schedules, which stand side by side in the search of a task: tilings
today, tensorised ones beside them where a target has intrinsics. What was measured decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol

from tunefleet.compiler.graph.forms import forms
from tunefleet.compiler.space.cpu import CpuSpace
from tunefleet.compiler.space.cuda import CudaSpace
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.compiler.toolchain.host import to_tvm
from tunefleet.compiler.toolchain.programs import load_program
from tunefleet.core.target import CpuTarget, CudaTarget, Target
from tunefleet.search.sketch import Sketch

tvm = load_tvm()
ms = tvm.s_tir.meta_schedule


class Family(Protocol):
    """Schedules that one set of MetaSchedule's rules and postprocessors makes.

    Without state: one object serves every task and thread.
    """

    def generator(self, target: Target, module: Any) -> Any:
        """A new space generator for a module whose only function is `main`. Its postprocessors are
        the same for all modules, and are asked for with one that has no function."""

    def made(self, trace: str) -> bool:
        """Whether a trace, canonical JSON, is of this family and no other. The last family of a
        space says so of every trace that no family before it claims."""

    def opened(self, target: Target, module: Any, open_trace: Any) -> Sketch:
        """The sketch of a design space of `module`, from its trace without postprocessing.

        Raises InternalError for a sampling instruction that is not known."""


class SearchSpace(Protocol):
    """The space of the targets of one kind; without state."""

    @property
    def families(self) -> Sequence[Family]:
        """At least one, always in the same order."""

    def plainly_scheduled(self, module: Any, target: Target) -> Any:
        """`module` with a schedule that needs no search and no measurement."""


_SPACES: Mapping[str, SearchSpace] = {CpuTarget.kind: CpuSpace(), CudaTarget.kind: CudaSpace()}


def space_of(target: Target) -> SearchSpace:
    return _SPACES[target.kind]


def plainly_scheduled(module: Any, target: Target) -> Any:
    """What a network runs where no program was found, and what checks an import."""
    return space_of(target).plainly_scheduled(module, target)


def tune_contexts(module: Any, target: Target, strategy: Any = None, *, seed: int = 1) -> list[Any]:
    """A form of a task with each family of its search space, and the strategy that is to search it,
    if any."""
    return [
        ms.TuneContext(
            module,
            target=to_tvm(target),
            space_generator=family.generator(target, module),
            search_strategy=strategy,
            num_threads=1,
            rand_state=seed,
        )
        for family in space_of(target).families
    ]


def _designed(program: str, target: Target) -> Iterator[tuple[Any, Family, Any]]:
    families = space_of(target).families
    for form in forms(load_program(program)):
        for family, context in zip(families, tune_contexts(form, target), strict=True):
            for schedule in context.generate_design_space():
                yield form, family, schedule


def sketches_of(program: str, target: Target) -> tuple[Sketch, ...]:
    """The sketches of a task on a target. Takes half a second for the first convolution with
    padding of its kind.

    Raises InternalError for a sampling instruction that is not known.
    """
    # MetaSchedule's search drops instructions without effect too: its traces have none.
    return tuple(
        family.opened(target, form, schedule.trace.simplified(remove_postproc=True))
        for form, family, schedule in _designed(program, target)
    )


def postprocessors(target: Target, trace: str) -> Any:
    """What MetaSchedule applies to a schedule after its trace, in order."""
    families = space_of(target).families
    number = next(i for i, family in enumerate(families) if family.made(trace))
    return _postprocessing(target, number).space_generator.postprocs


@lru_cache(maxsize=8)
def _postprocessing(target: Target, family: int) -> Any:
    """A context for its postprocessors, which it owns."""
    module = tvm.IRModule()
    generator = space_of(target).families[family].generator(target, module)
    return ms.TuneContext(module, target=to_tvm(target), space_generator=generator)
