"""Splits of records into training, validation and test parts.

Every split is seeded, has no empty part, and never has a (task, program) in two parts: copies of a
program stay together. Validation and test are disjoint. TenSet's own splits violate this (empty
test sets, validation on the test set), so targets are held out by name here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tunefleet.dataset.division import (
    BY_TARGET,
    BY_TASK,
    DEFAULT,
    IN_ORDER,
    WITHIN_TASK,
    Division,
    Shares,
)
from tunefleet.dataset.rows import Codes, Rows
from tunefleet.errors import InputError

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class SplitRows:
    """Row indices of the three parts, ascending and disjoint."""

    train: Codes
    validation: Codes
    test: Codes

    def __post_init__(self) -> None:
        for name, part in self.parts().items():
            if len(part) == 0:
                raise InputError(
                    f"the {name} part of the split is empty",
                    cure="give more records or tasks, or larger parts",
                )
        together = np.concatenate(list(self.parts().values()))
        if len(np.unique(together)) != len(together):
            raise ValueError("parts of a split share rows")

    def parts(self) -> dict[str, Codes]:
        return {"train": self.train, "validation": self.validation, "test": self.test}


def divide(rows: Rows, division: Division) -> SplitRows:
    """Split these rows. Raises InputError if a part would be empty."""
    return _capped(_whole(rows, division), division)


def _whole(rows: Rows, division: Division) -> SplitRows:
    shares, seed, held = division.shares, division.seed, division.hold_out or ""
    if division.name == WITHIN_TASK:
        return within_task(rows, shares, seed)
    if division.name == IN_ORDER:
        return within_task_in_order(rows, shares)
    if division.name == BY_TASK:
        return by_task(rows, shares, seed)
    if division.name == BY_TARGET:
        return by_target(rows, held, shares, seed)
    known: Mapping[str, Collection[str]]
    known = networks_by_log(rows) if division.networks is None else division.networks
    workloads = {w for name in division.held_networks for w in workloads_of(known, name)}
    return by_network(rows, workloads, shares, seed)


def _capped(split: SplitRows, division: Division) -> SplitRows:
    most = division.max_records
    if most is None:
        return split
    room = {"train": most, "validation": most // 4, "test": most // 2}
    generator = np.random.default_rng(division.seed)
    return SplitRows(
        **{
            name: np.sort(generator.choice(part, min(room[name], len(part)), replace=False))
            for name, part in split.parts().items()
        }
    )


def within_task(rows: Rows, shares: Shares = DEFAULT, seed: int = 0) -> SplitRows:
    """Shuffle the programs of every task; each part gets its share of every task."""
    count = int(rows.program.max(initial=-1)) + 1
    return _along_tasks(rows, shares, np.random.default_rng(seed).permutation(count))


def within_task_in_order(rows: Rows, shares: Shares = DEFAULT) -> SplitRows:
    """TenSet's default: the first programs of every task test, the next validate, the rest train.

    Logs are in search order, so this tests on slow programs. It exists for comparison.
    """
    return _along_tasks(rows, shares, np.arange(int(rows.program.max(initial=-1)) + 1))


def _along_tasks(rows: Rows, shares: Shares, order: Codes) -> SplitRows:
    """Split each task's programs by their position in `order`."""
    _, first = np.unique(rows.program, return_index=True)
    task = rows.task[first]
    by_task = np.lexsort((order, task))
    sizes = np.bincount(task)
    place = np.empty(len(task))
    place[by_task] = np.arange(len(task)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    place = (place + 0.5) / sizes[task]
    tested = place < shares.test
    validated = ~tested & (place < shares.test + shares.validation)
    return _parts(tested[rows.program], validated[rows.program])


def by_task(rows: Rows, shares: Shares = DEFAULT, seed: int = 0) -> SplitRows:
    """Draw whole tasks until each part has its share of the records."""
    generator = np.random.default_rng(seed)
    everywhere = np.ones(len(rows), bool)
    tested = _whole_tasks(rows, everywhere, shares.test, generator, left=2)
    validated = _whole_tasks(rows, ~tested, _rest(shares), generator, left=1)
    return _parts(tested, validated)


def by_target(rows: Rows, device: str, shares: Shares = DEFAULT, seed: int = 0) -> SplitRows:
    """One device tests, whole tasks of the others validate, the rest train.

    Targets count as devices too: if no device has the name, it is matched with a target's processor
    (`mcpu`), or with the whole text of a target. Raises InputError if nothing matches, or if there
    are no other records.
    """
    tested = _measured_on(rows, device)
    if not tested.any():
        known = [*rows.device.names, *filter(None, map(processor, rows.target.names))]
        raise InputError(f"no record was measured on {device!r}", cure=_choose({*known}))
    if tested.all():
        raise InputError(
            f"every record was measured on {device!r}, so none is left for training",
            cure="add records of another device",
        )
    return _held_out(rows, tested, shares, seed)


def _measured_on(rows: Rows, name: str) -> Mask:
    code = rows.device.code(name)
    if code is not None:
        return np.asarray(rows.device.codes == code)
    called = np.array([name in (target, processor(target)) for target in rows.target.names], bool)
    return called[rows.target.codes]


def processor(target: str) -> str:
    """`haswell` of `llvm -mcpu=haswell` and of `{"mcpu":"haswell"}`, or ""."""
    match = re.search(r'mcpu(?:=|"\s*:\s*")([\w.+-]+)', target)
    return match[1] if match else ""


def by_network(
    rows: Rows, workloads: Collection[str], shares: Shares = DEFAULT, seed: int = 0
) -> SplitRows:
    """The workloads of networks test, on any device; other tasks train.

    Workloads that other networks share are held out too, as in TenSet.
    """
    wanted = set(workloads)
    held = np.array([name in wanted for name in rows.workload.names], bool)
    tested = held[rows.workload.codes]
    if not tested.any():
        raise InputError(
            f"none of the {len(wanted)} workloads to hold out is in the records",
            cure="use the workload names of the records",
        )
    if tested.all():
        raise InputError(
            "every workload is held out, so none is left for training",
            cure="hold out fewer, or add records of other networks",
        )
    return _held_out(rows, tested, shares, seed)


def _held_out(rows: Rows, tested: Mask, shares: Shares, seed: int) -> SplitRows:
    generator = np.random.default_rng(seed)
    validated = _whole_tasks(rows, ~tested, shares.validation, generator, left=1)
    return _parts(tested, validated)


def _rest(shares: Shares) -> float:
    """The validation share of the records outside of the test part."""
    return shares.validation / (1 - shares.test)


def _whole_tasks(
    rows: Rows, among: Mask, share: float, generator: np.random.Generator, left: int
) -> Mask:
    """Rows of tasks drawn until they are `share` of the rows `among`; at least `left` tasks
    remain."""
    sizes = np.bincount(rows.task[among], minlength=int(rows.task.max(initial=-1)) + 1)
    tasks = generator.permutation(np.flatnonzero(sizes))
    if len(tasks) <= left:
        raise InputError(
            f"{len(tasks)} tasks are too few to hold out whole tasks",
            cure="add records of more tasks, or split within tasks",
        )
    reached = np.cumsum(sizes[tasks])
    enough = int(np.searchsorted(reached, share * reached[-1])) + 1
    chosen = tasks[: min(enough, len(tasks) - left)]
    return among & np.isin(rows.task, chosen)


def _parts(tested: Mask, validated: Mask) -> SplitRows:
    return SplitRows(
        train=np.flatnonzero(~tested & ~validated),
        validation=np.flatnonzero(validated),
        test=np.flatnonzero(tested),
    )


def _choose(names: Collection[str]) -> str:
    known = ", ".join(repr(name) for name in sorted(names))
    return f"hold out one of {known}"


def read_networks(path: Path) -> dict[str, tuple[str, ...]]:
    """Workloads by network from a JSON file `{"network": ["workload", ...]}`."""
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {error.strerror}", cure="give a JSON file of networks"
        ) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON: {error}", cure="give a JSON file") from error
    if not _is_networks(value):
        raise InputError(
            f"{path} does not map networks to lists of workloads",
            cure='write {"network": ["workload", ...]}',
        )
    return {name: tuple(workloads) for name, workloads in value.items()}


def networks_by_log(rows: Rows) -> dict[str, set[str]]:
    """Workloads by the name of their file, without folders and suffixes.

    Usually there is one log per network; files of equal name in several folders are one network.
    """
    workloads: dict[str, set[str]] = {}
    pairs = np.unique(np.stack([rows.source.codes, rows.workload.codes]), axis=1)
    for source, workload in pairs.T.tolist():
        name = re.split(r"[\\/]", rows.source.names[source])[-1].partition(".")[0]
        workloads.setdefault(name, set()).add(rows.workload.names[workload])
    return workloads


def _is_networks(value: object) -> bool:
    return isinstance(value, dict) and all(
        isinstance(workloads, list) and all(isinstance(w, str) for w in workloads)
        for workloads in value.values()
    )


def workloads_of(networks: Mapping[str, Collection[str]], network: str) -> Collection[str]:
    if network not in networks:
        raise InputError(f"there is no network {network!r}", cure=_choose(networks))
    return networks[network]
