"""Small values for the tests of the store, and Hypothesis strategies for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from tunefleet.core.agreement import Agreed
from tunefleet.core.budget import Budget
from tunefleet.core.identity import DeviceIdentity, ToolchainIdentity
from tunefleet.core.job import JobSpec
from tunefleet.core.network import NetworkInfo, TensorSpec
from tunefleet.core.settings import COST_MODELS, SearchSettings, TuneSettings
from tunefleet.core.stage import (
    BuildResult,
    Profiled,
    ProfileResult,
    SelectResult,
    StageKey,
    StageKind,
    StageResult,
    StageRun,
    UpdateResult,
)
from tunefleet.core.target import CpuTarget
from tunefleet.core.task import Task, WeightedTask
from tunefleet.core.trial import (
    Built,
    Candidate,
    Failure,
    FailureKind,
    Measurement,
    Trial,
)

DEVICE = DeviceIdentity("cpu", "Xeon", ("avx2", "fma"), 4, (("l1", 32768), ("l2", 1 << 20)), 16)
#: The same hardware under another key: not exact, but compatible.
SISTER = DeviceIdentity("cpu", "Xeon", ("avx2", "fma"), 4, (), 16, key="sister")
STRANGER = DeviceIdentity("cpu", "Xeon", ("avx512f",), 4, (), 16)
TOOLCHAIN = ToolchainIdentity("0.1.0", "0.27.0", "20.1", 1)
PATCHED = ToolchainIdentity("0.1.0", "0.27.1", "20.1", 1)
WRONG = Failure(FailureKind.WRONG_ANSWER, "0.3 is not 0.2")
CRASH = Failure(FailureKind.BUILD_CRASH, "signal 11")


def make_spec(
    name: str = "net",
    device: DeviceIdentity = DEVICE,
    toolchain: ToolchainIdentity = TOOLCHAIN,
) -> JobSpec:
    tensor = TensorSpec("x", (1, 3, 224, 224), "float32")
    network = NetworkInfo(name, "zoo", f"digest of {name}", (tensor,), (tensor,))
    target = CpuTarget("skylake", 4)
    return JobSpec(network, target, device, toolchain, Budget(trials=64), TuneSettings())


def make_task(task_id: str = "t", name: str = "conv", weight: int = 2) -> WeightedTask:
    return WeightedTask(Task(task_id, name, "conv2d", "1x3x8x8", 1e6, "program"), weight)


def cand(name: str, score: float = 0.5, features: bytes = b"\0features") -> Candidate:
    return Candidate(name, f'["trace of {name}"]', score, features)


def measured(*latencies_s: float) -> Measurement:
    return Measurement(latencies_s or (1e-3,), 0.01)


def make_trial(name: str, latency_s: float) -> Trial:
    return Trial(cand(name), 0, measured(latency_s), 0.5, 0.25)


def run_of(
    result: StageResult,
    job_id: str = "job",
    task_id: str = "t",
    iteration: int = 0,
    seconds: float = 2.0,
    started_at: float = 100.0,
) -> StageRun:
    kinds = {
        SelectResult: StageKind.SELECT,
        BuildResult: StageKind.BUILD,
        ProfileResult: StageKind.PROFILE,
        UpdateResult: StageKind.UPDATE,
    }
    key = StageKey(job_id, task_id, iteration, kinds[type(result)])
    return StageRun(key, result, started_at, seconds)


def built(*names: str, build_s: float = 0.5) -> tuple[Built, ...]:
    return tuple(Built(n, f"/lib/{n}.so", (((1, 3), "float32"),), build_s) for n in names)


def commit_measured(store: Any, latencies_s: dict[str, float], **where: Any) -> None:
    """A whole iteration up to profile, with one latency per candidate."""
    chosen = tuple(cand(name) for name in latencies_s)
    store.work.commit(run_of(SelectResult(chosen), **where))
    store.work.commit(run_of(BuildResult(built(*latencies_s)), **where))
    results = tuple(Profiled(n, measured(latency), 0.25) for n, latency in latencies_s.items())
    store.work.commit(run_of(ProfileResult(results), **where))


def commit_failed(store: Any, name: str, failure: Failure, **where: Any) -> None:
    """A whole iteration of one candidate that was built and then failed on the device."""
    store.work.commit(run_of(SelectResult((cand(name),)), **where))
    store.work.commit(run_of(BuildResult(built(name)), **where))
    store.work.commit(run_of(ProfileResult((), ((name, failure),)), **where))


def open_with_task(store: Any, job_id: str, task_id: str = "t", **spec: Any) -> None:
    store.jobs.open(make_spec(**{"name": job_id, **spec}), job_id=job_id, now=1.0)
    store.work.put_tasks(job_id, [make_task(task_id)])


positive = st.floats(1e-9, 1e6)
words = st.text(max_size=20)
specs = st.builds(
    JobSpec,
    network=st.builds(
        NetworkInfo,
        name=words,
        source=words,
        digest=words,
        inputs=st.tuples(st.builds(TensorSpec, words, st.just((2, 3)), words)),
        outputs=st.just(()),
    ),
    target=st.builds(
        CpuTarget, mcpu=words, threads=st.integers(1, 99), mattr=st.tuples(words, words)
    ),
    device=st.builds(
        DeviceIdentity,
        kind=words,
        name=words,
        isa=st.lists(words, max_size=3).map(tuple),
        cores=st.integers(1, 99),
        caches=st.lists(st.tuples(words, st.integers(0, 1 << 30)), max_size=3).map(tuple),
        memory_gib=st.integers(0, 4096),
        key=words,
    ),
    toolchain=st.builds(ToolchainIdentity, words, words, words, st.integers(0, 9)),
    budget=st.builds(
        Budget,
        trials=st.integers(1, 10**6),
        seconds=st.none() | positive,
        target_latency_s=st.none() | positive,
        trials_per_task=st.none() | st.integers(1, 10**6),
        device_seconds=st.none() | positive,
    ),
    settings=st.builds(
        TuneSettings,
        search=st.builds(
            SearchSettings, batch=st.integers(1, 99), cost_model=st.sampled_from(COST_MODELS)
        ),
        transfer=st.booleans(),
    ),
    agreed=st.builds(Agreed, speedup=st.none() | positive, most_lost=st.none() | positive),
)
tasks = st.builds(
    WeightedTask,
    st.builds(Task, words, words, words, words, st.floats(0, 1e15), st.text(max_size=200)),
    st.integers(1, 99),
)
#: What a crashed process says may hold anything, lone surrogates and NUL among them.
noise = st.text(st.characters(exclude_categories=()), max_size=40)
failures = st.builds(Failure, st.sampled_from(FailureKind), noise)
measurements = st.builds(
    Measurement, st.lists(positive, min_size=1, max_size=200).map(tuple), st.floats(-1, 1)
)


def distinct_candidates(max_size: int = 5) -> st.SearchStrategy[Sequence[Candidate]]:
    one = st.builds(
        Candidate,
        st.text("abcdef", min_size=1, max_size=3),
        st.text(max_size=200),
        st.floats(allow_nan=False),
        st.binary(max_size=64),
    )
    return st.lists(one, max_size=max_size, unique_by=lambda c: c.candidate_id)
