"""Fixtures shared by all tests."""

from __future__ import annotations

import gc
import importlib.util
import os
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import coverage_floor
import pytest
import without_compiler
from hypothesis import settings

# The suites that the package has for those who add a device or an executor.
pytest.register_assert_rewrite("tunefleet.testing")

# A busy machine is no error of the code: examples have no time limit of their own.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")
# `make quick`, by --hypothesis-profile.
settings.register_profile("quick", deadline=None, max_examples=10)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--without-compiler",
        action="store_true",
        help="run what needs neither the compiler nor a framework, and let nothing import them",
    )


def pytest_configure(config: pytest.Config) -> None:
    if not config.option.without_compiler:
        return
    config.option.markexpr = config.option.markexpr or without_compiler.LEFT
    os.environ.setdefault("TUNEFLEET_SEQUENCES", "30")
    folder = tempfile.TemporaryDirectory(prefix="absent-")
    config.add_cleanup(folder.cleanup)
    without_compiler.hide(Path(folder.name))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if collector.config.option.without_compiler and isinstance(collector, pytest.Module):
        without_compiler.skipped(report, collector.path)
    return report


#: Marks of what takes long.
_LONG = {"tvm", "frameworks", "slow"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # What `make quick` runs comes last: at the end, no worker has a long file and the others none.
    long = {item.path for item in items if _LONG & set(item.keywords)}
    items.sort(key=lambda item: item.path not in long)
    if importlib.util.find_spec("tvm") is None:
        skip = pytest.mark.skip(reason="apache-tvm is not installed")
        for item in items:
            if "tvm" in item.keywords:
                item.add_marker(skip)


#: Branch coverage by room, once all tests have run with `--cov`.
_ROOMS = pytest.StashKey[list[coverage_floor.Room]]()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """With `--cov`, before pytest's summary. A part of the tests says nothing of a room."""
    options = session.config.option
    if options.without_compiler and without_compiler.found():
        raise pytest.UsageError(f"imported: {', '.join(without_compiler.found())}")
    if not getattr(options, "cov_source", None) or _is_part(session.config):
        return
    found = coverage_floor.rooms(session.config.rootpath)
    session.config.stash[_ROOMS] = found
    if session.exitstatus == pytest.ExitCode.OK and any(room.too_low for room in found):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _is_part(config: pytest.Config) -> bool:
    chosen = config.option.keyword or config.option.markexpr or config.option.deselect
    return config.args_source is not pytest.Config.ArgsSource.TESTPATHS or bool(chosen)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    found = config.stash.get(_ROOMS, [])
    if found:
        terminalreporter.section("branch coverage by room")
        terminalreporter.write_line("\n".join([coverage_floor.HEADER, *map(str, found)]))


@pytest.fixture(scope="session", autouse=True)
def _workers_with_torch(request: pytest.FixtureRequest) -> None:
    """Most networks of tests are PyTorch's: it is imported once, not by each worker."""
    needed = ("torch", "tunefleet.workers")
    if request.config.option.without_compiler or None in map(importlib.util.find_spec, needed):
        return
    from tunefleet.workers import _spawn

    _spawn.PRELOADED.append(_spawn.TORCH)


@pytest.fixture(scope="module", autouse=True)
def _imported_is_kept() -> None:
    """Garbage is looked for seldom, and not among all the libraries that are imported by now."""
    gc.set_threshold(50_000, 20, 20)
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the user's own records."""
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
    monkeypatch.delenv("TUNEFLEET_HOME", raising=False)


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network in ONNX that takes little time to import and to tune."""
    from tests.networks import write_small

    return write_small(tmp_path_factory.mktemp("network") / "small.onnx")


@pytest.fixture(scope="session")
def tiny() -> Any:
    from tunefleet.compiler.toolchain.host import native_target
    from tunefleet.stages.importing import import_network

    return import_network("zoo:tiny_cnn", native_target(1))


@pytest.fixture(scope="session")
def machine() -> Iterator[Any]:
    from tests.fleet.jobs import SHARED
    from tunefleet.workers.machine import Machine

    cores = os.sched_getaffinity(0)
    with Machine(SHARED) as made:
        # It is there until all tests have ended; they do not share its one core.
        os.sched_setaffinity(0, cores)
        yield made


@pytest.fixture(scope="session")
def emulated_gpu(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables for processes to be started, which then have an emulated GPU."""
    from tests.emulation.compiling import has_compiler
    from tests.emulation.environment import emulated_environment

    if not has_compiler():
        pytest.skip("no g++")
    return emulated_environment(tmp_path_factory.mktemp("emulation"))
