"""Training of the members of a cost model, one per seed, on one split.

The validation part is used for early stopping; the test part is not used.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass

from tunefleet.costmodel import MODELS, CostModel, has_cuda
from tunefleet.costmodel.card import Setting
from tunefleet.errors import InputError, SetupError
from tunefleet.learning.inputs import Examples
from tunefleet.learning.progress import ReportProgress

DEVICES = ("cpu", "cuda")


@dataclass(frozen=True)
class Options:
    """The user's training options; each kind of model uses the ones that it supports."""

    epochs: int | None = None
    device: str = "cpu"
    hidden: int | None = None
    replay: int | None = None

    def check(self, kinds: Collection[str]) -> None:
        """Refuse unknown kinds, and options that no kind supports.

        Raises InputError, and SetupError if this machine lacks the device.
        """
        for kind in kinds:
            _parameters(kind)
        for name, what in (
            ("epochs", "is not trained in epochs"),
            ("hidden", "has no width"),
            ("replay", "does not replay programs"),
        ):
            if getattr(self, name) is not None and not any(name in _parameters(k) for k in kinds):
                raise InputError(f"{', '.join(kinds)} {what}", cure=f"leave --{name} out")
        for kind in kinds:
            try:
                self.model(kind, seed=0)
            except ValueError as error:
                raise InputError(
                    f"invalid options for {kind}: {error}", cure="correct --hidden or --epochs"
                ) from error
        if self.device == "cpu":
            return
        if self.device not in DEVICES:
            raise InputError(
                f"unknown device {self.device!r}", cure=f"choose {' or '.join(DEVICES)}"
            )
        if not any("device" in _parameters(kind) for kind in kinds):
            raise InputError(f"{', '.join(kinds)} trains on the CPU only", cure="use --device cpu")
        if not has_cuda():
            raise SetupError(
                "PyTorch finds no CUDA device on this machine",
                cure="use --device cpu, or install PyTorch with CUDA on a machine that has a GPU",
            )

    def of(self, kind: str) -> Options:
        """The options that a kind of model supports."""
        known = _parameters(kind)
        return Options(**{name: value for name, value in asdict(self).items() if name in known})

    def model(self, kind: str, seed: int) -> CostModel:
        """A new, untrained model."""
        known = _parameters(kind)
        given = {"seed": seed, **asdict(self)}
        return MODELS[kind](
            **{name: value for name, value in given.items() if name in known and value is not None}
        )


def _parameters(kind: str) -> Collection[str]:
    """The constructor parameters of a kind."""
    if kind not in MODELS:
        raise InputError(
            f"unknown kind of cost model {kind!r}", cure=f"choose one of {', '.join(MODELS)}"
        )
    return inspect.signature(MODELS[kind]).parameters


def seeds_of(kind: str, count: int) -> tuple[int, ...]:
    """Seeds of the members; only one for a deterministic kind, whose members would be equal."""
    return tuple(range(count)) if "seed" in _parameters(kind) else (0,)


def settings_of(model: CostModel) -> dict[str, Setting]:
    """The constructor arguments without the seed."""
    given = {name: getattr(model, name, None) for name in _parameters(model.name)}
    return {
        name: value
        for name, value in given.items()
        if name != "seed" and isinstance(value, str | int | float | bool)
    }


@dataclass(frozen=True)
class Trained:
    """The members of a model in the order of their seeds, the wall seconds of each, and whether
    their training continued from a parent's weights."""

    kind: str
    seeds: tuple[int, ...]
    members: tuple[CostModel, ...]
    seconds: tuple[float, ...]
    went_on: bool = False


def train(
    kind: str,
    train_part: Examples,
    validation_part: Examples,
    *,
    seeds: int,
    options: Options,
    progress: ReportProgress,
    start: Sequence[CostModel] = (),
    clock: Callable[[], float] = time.perf_counter,
) -> Trained:
    """Train a member per seed, from scratch or from the members `start` (`versions.start_of`),
    which are not modified. Raises InputError, and SetupError if a library is missing.
    """
    options.check([kind])
    if start and options.hidden is not None:
        raise InputError("the parent determines the width", cure="leave --hidden out")
    given, validation = train_part.measured(), validation_part.measured()
    members: list[CostModel] = []
    seconds: list[float] = []
    numbers: Sequence[int] = seeds_of(kind, seeds)
    for seed in numbers:
        started = clock()
        if start:
            parent = start[len(members) % len(start)]
            model = parent.learned_on(
                given, validation, seed=seed, device=options.device, epochs=options.epochs
            )
        else:
            model = options.model(kind, seed)
            model.learn(given, validation)
        members.append(model)
        seconds.append(clock() - started)
        progress(
            f"trained {kind}, seed {seed} ({len(members)} of {len(numbers)}) on "
            f"{len(given.labels):,} records in {seconds[-1]:.1f} s"
        )
    return Trained(kind, tuple(numbers), tuple(members), tuple(seconds), bool(start))
