"""Cost models that learn in the background from what searches measure, on hosts that do nothing
else.

For each tenant a version learns on from the one that its searches use, by records of its own jobs
and of those that share with it. It takes the other's place where it ranks records that were held
back no worse, and does not forget. It does so in a process of its own, which ends as soon as
anybody wants the host: what it did is then lost, and nothing else.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tunefleet.core.ids import digest
from tunefleet.core.job import Job, JobState
from tunefleet.core.settings import MOST_FORGOTTEN, SHIPPED_MODEL
from tunefleet.errors import InputError, StoreBusyError, TunefleetError
from tunefleet.fleet.leases import Leases, is_over, this_process
from tunefleet.runs.pretrained import in_use
from tunefleet.store import Learning, LearningOutcome, Store, User, open_store
from tunefleet.system.scratch import remove_own, sweep, torch_cache

if TYPE_CHECKING:
    from tunefleet.costmodel.card import DeviceMetrics
    from tunefleet.costmodel.registry import Registry, RegistryEntry
    from tunefleet.learning.continuing import Continued

#: Jobs that are looked at for new records, the newest, and records that are learned at once.
_MOST_JOBS, _MOST_RECORDS = 500, 20_000
#: Seconds without work before it begins, between two looks for new records, and between two looks
#: whether the host is wanted.
_QUIET_S, _LOOK_S, _WANTED_S = 10.0, 30.0, 0.25
#: Seconds until it is tried again for a tenant where it ended by an error.
_FAILED_S = 3600.0
#: By which its process ends itself where anybody wants the host: this is no error.
_GIVES_WAY = signal.SIGTERM
_ENDS = "learning in the background ends: there is work"
#: What is held by whoever learns, and the unit of a server.
_ALONE, _UNITS_BESIDE = "lifelong", ("server", "job lifelong")
#: By what versions are compared, and what else is told of them.
RANKED_BY, _TOLD = "pca", ("pca", "top1", "top5")


@dataclass(frozen=True, slots=True)
class NewRecords:
    """Jobs of others' or one's own that have ended, whose records nothing was learned from."""

    tenant: str
    jobs: tuple[Job, ...]
    records: int


def new_records(store: Store, tenant: str) -> NewRecords:
    """What a tenant's model could learn, of the newest jobs."""
    owners, found, count = store.explorer.owners(tenant), [], 0
    for owner in sorted(owners):
        jobs = [
            job
            for job in store.jobs.page(tenant=owner, limit=_MOST_JOBS)
            if job.state is not JobState.RUNNING and not job.spec.shared
        ]
        known = store.explorer.learned(tenant, tuple(job.job_id for job in jobs))
        fresh = [job for job in jobs if job.job_id not in known]
        outcomes = store.jobs.outcomes([job.job_id for job in fresh])
        for job in fresh:
            trials = outcomes[job.job_id].trials if job.job_id in outcomes else 0
            if trials and count + trials <= _MOST_RECORDS:
                found.append(job)
                count += trials
    return NewRecords(tenant, tuple(found), count)


def is_wanted(store: Store, own: Sequence[int]) -> bool:
    """Whether anybody works on this home, or waits to, but processes of these numbers."""
    here = this_process()
    for status in store.coordination.claims():
        holder, units = status.claim.holder.process, status.claim.units
        is_own = holder.space == here.space and holder.pid in own
        is_beside = all(
            unit in _UNITS_BESIDE or (is_own and unit.startswith("job ")) for unit in units
        )
        if not is_beside and not is_over(status):
            return True
    return False


class BackgroundLearning:
    """Learning in the background of a server: `look` is called while it runs. Not thread-safe.

    It begins where `every` records are new, after some seconds without work; 0 is never.
    """

    def __init__(self, store: Store, home: Path, every: int, say: Callable[[str], None]) -> None:
        self._store = store
        self._home = home
        self._every = every
        self._say = say
        self._process: subprocess.Popen[bytes] | None = None
        self._tenant = ""
        self._idle_since: float | None = None
        self._next_look = 0.0
        #: When tenants whose learning ended by an error are tried again, in monotonic seconds.
        self._later: dict[str, float] = {}
        self._seen = -1

    def look(self, is_idle: bool) -> None:
        """Begin, go on or end, by whether the server has nothing to do."""
        now = time.monotonic()
        if not is_idle:
            self.stop()
            self._idle_since = None
            return
        self._reap()
        if self._idle_since is None:
            self._idle_since = now
        is_quiet = now - self._idle_since >= _QUIET_S and now >= self._next_look
        if self._every and self._process is None and is_quiet:
            self._next_look = now + _LOOK_S
            self._begin()

    def stop(self) -> None:
        """End it at once, if it goes on."""
        if self._process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process = None
        sweep()
        self._say(_ENDS)

    def _begin(self) -> None:
        last = self._store.events.last()
        if last == self._seen or is_wanted(self._store, [os.getpid()]):
            return
        waits = False
        for tenant in self._in_turn():
            if time.monotonic() < self._later.get(tenant, 0.0):
                waits = True
                continue
            new = new_records(self._store, tenant)
            if new.records >= self._every:
                self._tenant = tenant
                own = str(os.getpid())
                command = [sys.executable, "-m", __name__, str(self._home), tenant, own]
                self._process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                    start_new_session=True,
                )  # fmt: skip
                whose = f" of {tenant}" if tenant else ""
                self._say(f"a cost model learns from {new.records:,} new records{whose}")
                return
        self._seen = -1 if waits else last

    def _in_turn(self) -> list[str]:
        """All tenants, the one that learned last at the end: where work keeps ending the learning
        of one, the others come to theirs."""
        tenants = ["", *(user.name for user in _users(self._store))]
        turn = tenants.index(self._tenant) + 1 if self._tenant in tenants else 0
        return tenants[turn:] + tenants[:turn]

    def _reap(self) -> None:
        if self._process is None or self._process.poll() is None:
            return
        code, self._process = self._process.returncode, None
        if code == -_GIVES_WAY:
            self._idle_since = None
            self._say(_ENDS)
            return
        if code:
            self._later[self._tenant] = time.monotonic() + _FAILED_S
            self._say(f"learning in the background failed; again in {_FAILED_S / 60:.0f} minutes")
            return
        newest = next(iter(self._store.explorer.learnings(self._tenant, 1)), None)
        if newest is not None:
            self._say(f"what it learned: {told(newest)}")


def _users(store: Store) -> Iterator[User]:
    after = ""
    while page := store.accounts.users(after):
        yield from page
        after = page[-1].name


def told(learning: Learning) -> str:
    """What came of a learning, in a sentence."""
    ranked = ""
    if learning.before and learning.after:
        before, after = learning.before[RANKED_BY], learning.after[RANKED_BY]
        of = f"of {learning.held_back:,} records held back"
        ranked = f"; pairs in order: {before:.3f} before, {after:.3f} after, {of}"
    texts = {
        LearningOutcome.NO_WORSE: f"version {learning.model[:12]} is used from now on",
        LearningOutcome.WORSE: f"version {learning.model[:12]} is not used: "
        f"{learning.reason or 'it ranks worse'}",
        LearningOutcome.FORGETS: f"refused: {learning.reason}",
        LearningOutcome.FAILED: f"nothing: {learning.reason}",
        LearningOutcome.CHOSEN: f"version {learning.in_use[:12]} was chosen",
    }
    return texts[learning.outcome] + ranked


def learn_once(store: Store, home: Path, tenant: str, epochs: int | None = None) -> Learning:
    """Learn what is new for a tenant, judge the version, and keep what came of it. Where the tenant
    may no longer have one of the jobs, or has chosen another version, it learns again."""
    from tunefleet.costmodel.registry import registry_of

    registry = registry_of(home)
    while True:
        new, parent = new_records(store, tenant), in_use(registry, store, tenant)
        learning = Learning(
            tenant=tenant,
            at=time.time(),
            outcome=LearningOutcome.FAILED,
            parent=parent.card.id,
            model="",
            in_use=parent.card.id,
            jobs=tuple(job.job_id for job in new.jobs),
            records=new.records,
        )
        made: Continued | None = None
        try:
            made = _continued(store, parent, new, epochs)
        except InputError as error:
            learning = replace(learning, reason=error.what)
        now = {job.job_id for job in new_records(store, tenant).jobs}
        same = in_use(registry, store, tenant).card.id == parent.card.id
        if same and now.issuperset(learning.jobs):
            break
    if made is not None:
        learning = _judged(made, registry, learning, _is_chosen(store, tenant))
    learning = replace(learning, at=time.time())
    store.explorer.add_learning(learning)
    return learning


def _is_chosen(store: Store, tenant: str) -> bool:
    """Whether a user chose the version in use, which only a better one replaces."""
    switches = (LearningOutcome.CHOSEN, LearningOutcome.NO_WORSE)
    of = (each.outcome for each in store.explorer.learnings(tenant, 100))
    return next((each for each in of if each in switches), None) is LearningOutcome.CHOSEN


def _continued(
    store: Store, parent: RegistryEntry, new: NewRecords, epochs: int | None
) -> Continued:
    from tunefleet.dataset.division import Division, Shares
    from tunefleet.learning import growing, training
    from tunefleet.learning.continuing import continued
    from tunefleet.learning.records import read_records
    from tunefleet.runs.collected import write_jobs
    from tunefleet.system.scratch import scratch_folder

    growing.check_learns(parent.card, parent.load())
    with scratch_folder("learn") as folder:
        paths = [Path(folder, f"{job.job_id}.parquet") for job in new.jobs]
        files = [
            path
            for path, job in zip(paths, new.jobs, strict=True)
            if write_jobs(path, store, [job])
        ]
        records = read_records(files, device="", on_bad=lambda bad: None, progress=_silent)
    division = Division(shares=Shares(test=0.2))
    return continued(parent, records, division, training.Options(epochs), _silent)


def _judged(made: Continued, registry: Registry, learning: Learning, is_chosen: bool) -> Learning:
    """Both versions rank the records that were held back. The new one is kept, unless it forgets
    or they cannot be ranked."""
    from tunefleet.learning import growing

    tenant = learning.tenant
    name = f"learned-{SHIPPED_MODEL}{f'-{digest(tenant)[:8]}' if tenant else ''}"
    try:
        growing.check_recall(name, made.recalls, MOST_FORGOTTEN)
    except InputError as error:
        return replace(learning, outcome=LearningOutcome.FORGETS, reason=error.what)
    try:
        tested = made.tested()
    except InputError as error:
        return replace(learning, reason=error.what)
    before, after = _means(made.tested_before()), _means(tested)
    entry = made.publish(registry, name, tested, time.time())
    learning = replace(
        learning,
        model=entry.card.id,
        held_back=sum(device.records for device in tested),
        before=before,
        after=after,
    )
    if after[RANKED_BY] < before[RANKED_BY]:
        return replace(learning, outcome=LearningOutcome.WORSE)
    if is_chosen and after[RANKED_BY] == before[RANKED_BY]:
        reason = "it ranks no better than the version that was chosen"
        return replace(learning, outcome=LearningOutcome.WORSE, reason=reason)
    return replace(learning, outcome=LearningOutcome.NO_WORSE, in_use=entry.card.id)


def _means(metrics: Sequence[DeviceMetrics]) -> dict[str, float]:
    """Over devices, weighted by their records."""
    total = sum(device.records for device in metrics)
    return {
        name: sum(device.records * device.median(name) for device in metrics) / total
        for name in _TOLD
    }


def _silent(text: str) -> None:
    """Nobody watches."""


@contextmanager
def _ended_by_work(store: Store, server: int) -> Iterator[None]:
    """This process ends at once where anybody wants the host within the block, or the server has
    ended, which is the process of this number."""
    done, own = threading.Event(), (os.getpid(), server)

    def look() -> None:
        while not done.wait(_WANTED_S):
            if is_wanted(store, own) or os.getppid() != server:
                remove_own()
                os.killpg(0, _GIVES_WAY)

    looking = threading.Thread(target=look, name="tunefleet-lifelong", daemon=True)
    looking.start()
    try:
        yield
    finally:
        done.set()
        looking.join()


def _main(home: str, tenant: str, server: str) -> int:
    os.nice(19)
    with closing(open_store(Path(home))) as store, closing(Leases(store.coordination)) as leases:
        try:
            with leases.job(_ALONE), torch_cache(), _ended_by_work(store, int(server)):
                learn_once(store, Path(home), tenant)
        except StoreBusyError:  # another process learns
            return 0
        except TunefleetError as error:
            print(f"learning in the background: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
