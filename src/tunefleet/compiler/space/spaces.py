"""Search spaces by kind of target.

A space consists of families of schedules that compete in the search of a task: tilings, and
tensorised schedules if the target has intrinsics. Measurements decide between them.
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
    """The schedules by one set of MetaSchedule rules and postprocessors.

    Stateless: one object serves all tasks and threads.
    """

    def generator(self, target: Target, module: Any) -> Any:
        """A new space generator for a module with the single function `main`. Its postprocessors do
        not depend on the module, and are requested with an empty one."""

    def made(self, trace: str) -> bool:
        """Whether a trace, canonical JSON, belongs to this family only. The last family of a space
        accepts all remaining traces."""

    def opened(self, target: Target, module: Any, open_trace: Any) -> Sketch:
        """The sketch of a design space of `module`, from its trace without postprocessing.

        Raises InternalError for an unknown sampling instruction."""


class SearchSpace(Protocol):
    """The search space of targets of one kind; stateless."""

    @property
    def families(self) -> Sequence[Family]:
        """The families, at least one, in a fixed order."""

    def plainly_scheduled(self, module: Any, target: Target) -> Any:
        """`module` with the plain schedule."""


_SPACES: Mapping[str, SearchSpace] = {CpuTarget.kind: CpuSpace(), CudaTarget.kind: CudaSpace()}


def space_of(target: Target) -> SearchSpace:
    return _SPACES[target.kind]


def plainly_scheduled(module: Any, target: Target) -> Any:
    """The plain schedule, for tasks without a winner and for checking imports."""
    return space_of(target).plainly_scheduled(module, target)


def tune_contexts(module: Any, target: Target, strategy: Any = None, *, seed: int = 1) -> list[Any]:
    """TuneContexts of a form of a task, one per family of its search space, with an optional search
    strategy."""
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

    Raises InternalError for an unknown sampling instruction.
    """
    # Traces of MetaSchedule's search contain no instructions without effect either.
    return tuple(
        family.opened(target, form, schedule.trace.simplified(remove_postproc=True))
        for form, family, schedule in _designed(program, target)
    )


def postprocessors(target: Target, trace: str) -> Any:
    """MetaSchedule's postprocessors of a trace, in order."""
    families = space_of(target).families
    number = next(i for i, family in enumerate(families) if family.made(trace))
    return _postprocessing(target, number).space_generator.postprocs


@lru_cache(maxsize=8)
def _postprocessing(target: Target, family: int) -> Any:
    """A context that owns the postprocessors of a family."""
    module = tvm.IRModule()
    generator = space_of(target).families[family].generator(target, module)
    return ms.TuneContext(module, target=to_tvm(target), space_generator=generator)
