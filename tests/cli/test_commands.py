from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tunefleet.cli.networks import ABOUT
from tunefleet.core.home import Home
from tunefleet.core.layout import LayoutChoice
from tunefleet.core.network import Signature, TensorSpec
from tunefleet.core.result import Evaluation, KernelTime
from tunefleet.core.statistics import Interval
from tunefleet.devices.neighbours import JoinedCores, save_joined
from tunefleet.errors import InputError
from tunefleet.fleet.server_socket import ServerReply, ServerSocket
from tunefleet.runs.calling import read_array
from tunefleet.zoo import names

from .conftest import Invoke

pytestmark = pytest.mark.slow

Modules = Callable[..., None]
LISTING = {
    "network": "tiny_cnn",
    "target": "llvm -mcpu=znver3 -num-cores=2",
    "notes": ["the batch dimension n is 1"],
    "outside": None,
    "tasks": [
        {
            "task_id": "0" * 32,
            "name": "conv2d+add",
            "shapes": "1x16x16x3",
            "weight": 2,
            "flops": 2.5e6,
            "share": 1.0,
        }
    ],
}


@pytest.fixture
def inference(modules: Modules) -> list[Any]:
    """An artifact that doubles its inputs and remembers how it was called."""
    calls: list[Any] = []

    class Doubling:
        def __init__(self, artifact: str, home: Path | None, signed_by: Path | None) -> None:
            calls.append((artifact, home))
            names = ("a", "b") if artifact == "two" else ("a",)
            specs = tuple(TensorSpec(name, (3,), "float32") for name in names)
            self.signatures = [Signature(specs, specs)]

        def __enter__(self) -> Doubling:
            return self

        def __exit__(self, *error: object) -> None: ...

        def run(self, arrays: list[Any]) -> list[Any]:
            assert {array.dtype for array in arrays} == {np.dtype("float32")}
            return [2 * array for array in arrays]

    def load(artifact: str, *, home: Path | None, signed_by: Path | None) -> Doubling:
        return Doubling(artifact, home, signed_by)

    def evaluate_artifact(
        artifact: str, home: Path | None, rounds: int, signed_by: Path | None, tell: Any
    ) -> Evaluation:
        calls.append((artifact, home, rounds))
        interval, kernel = Interval(2.0, 1.9, 2.1), KernelTime(name="fused_conv2d", ms=1.5)
        return Evaluation(artifact=artifact, network="n", tuned_ms=interval, kernels=(kernel,))

    modules("tunefleet.artifacts.opening", load=load)
    modules("tunefleet.runs.errands", evaluate_artifact=evaluate_artifact)
    return calls


@pytest.fixture
def array(tmp_path: Path) -> Path:
    path = tmp_path / "x.npy"
    np.save(path, np.arange(3, dtype="float32"))
    return path


def test_tasks_lists_ranks_and_shares(invoke: Invoke, modules: Modules) -> None:
    modules("tunefleet.runs.listing", list_tasks=lambda spec, target, threads, options: LISTING)
    assert "conv2d+add" in invoke("tasks", "zoo:tiny_cnn").out
    assert json.loads(invoke("tasks", "zoo:tiny_cnn", "--json", "-").out) == LISTING


def test_run_writes_the_output(
    invoke: Invoke, inference: list[Any], array: Path, tmp_path: Path
) -> None:
    out = tmp_path / "y.npy"
    ended = invoke("run", "artifact", "--input", str(array), "--output", str(out))
    assert (ended.code, ended.err) == (0, "")
    assert "a: float32[3], from 0 to 4" in ended.out
    assert "\n  [2]  4\n  [1]  2\n  [0]  0\n" in ended.out
    assert np.load(out).tolist() == [0, 2, 4]
    assert inference == [("artifact", None)]


def test_run_numbers_several_outputs(
    invoke: Invoke, inference: list[Any], array: Path, tmp_path: Path
) -> None:
    given = ("--input", str(array), "--input", str(array))
    ended = invoke("run", "two", *given, "--output", str(tmp_path / "y.npy"), "--json", "-")
    paths = [item["path"] for item in json.loads(ended.out)["outputs"]]
    assert paths == [str(tmp_path / "y-0.npy"), str(tmp_path / "y-1.npy")]


def test_run_casts_where_no_value_is_lost_and_says_so(
    invoke: Invoke, inference: list[Any], tmp_path: Path
) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.array([0.1, 2.0, -3.0]))
    ended = invoke("run", "artifact", "--input", str(path))
    assert (ended.code, ended.err) == (0, "note: input a: float64 was cast to float32\n")
    np.save(path, np.array([1, 2, 1 << 60]) + 1)
    ended = invoke("run", "artifact", "--input", str(path))
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "input a is int64 and has values that float32 does not" in ended.err


def test_run_times_repeated_calls(
    invoke: Invoke, inference: list[Any], array: Path, tmp_path: Path
) -> None:
    """Without a home, which is not made for it."""
    home = tmp_path / "nowhere"
    given = ("run", "artifact", "--input", str(array), "--repeat", "9", "--home", str(home))
    assert "the median of 9 calls" in invoke(*given).out
    value = json.loads(invoke(*given, "--json", "-").out)
    latency = value["latency_ms"]
    assert 0 < latency["low"] <= latency["median"] <= latency["high"]
    assert value["repeats"] == 9
    assert not home.exists()


def _broken_inputs(place: Path) -> dict[str, Path]:
    (place / "text.npy").write_text("not an array")
    (place / "empty.npy").write_bytes(b"")
    np.save(place / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.savez(place / "archive.npz", a=np.zeros(1))
    whole = place / "short.npy"
    np.save(whole, np.zeros(100))
    whole.write_bytes(whole.read_bytes()[:-10])
    files = {path.stem: path for path in place.iterdir()}
    return files | {"missing": place / "missing.npy", "directory": place}


@pytest.mark.parametrize(
    "kind", ["text", "empty", "objects", "archive", "short", "missing", "directory"]
)
def test_run_refuses_what_is_not_an_array(
    invoke: Invoke, inference: list[Any], tmp_path: Path, kind: str
) -> None:
    path = _broken_inputs(tmp_path)[kind]
    ended = invoke("run", "artifact", "--input", str(path))
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert str(path) in ended.err
    assert inference == []


def test_run_needs_an_input(invoke: Invoke) -> None:
    assert invoke("run", "artifact").code == 2


def test_evaluate_tells_kernels(invoke: Invoke, inference: list[Any]) -> None:
    assert "fused_conv2d" in invoke("evaluate", "artifact").out
    shown = json.loads(invoke("evaluate", "artifact", "--rounds", "3", "--json", "-").out)
    assert shown["tuned_ms"]["median"] == 2.0
    assert inference == [("artifact", None, 12), ("artifact", None, 3)]


@pytest.mark.parametrize(("code", "severity"), [(0, "ok"), (0, "warning"), (3, "error")])
def test_doctor_fails_on_errors_only(
    invoke: Invoke, modules: Modules, code: int, severity: str
) -> None:
    check = {"name": "cpu", "ok": code == 0, "severity": severity, "value": "1", "advice": "more"}
    modules("tunefleet.devices.doctor", examine=lambda choice, home: {"checks": [check]})
    ended = invoke("doctor")
    assert (ended.code, ended.err) == (code, "")
    assert "cpu" in ended.out
    assert json.loads(invoke("doctor", "--json", "-").out) == {"checks": [check]}


@pytest.fixture
def reasons(modules: Modules) -> list[str]:
    """Why the doctor's machine is used as it is; nothing is examined."""
    told: list[str] = []

    def examine(choice: LayoutChoice, home: Path) -> dict[str, Any]:
        told.append(choice.reason)
        return {"checks": []}

    modules("tunefleet.devices.doctor", examine=examine)
    return told


def test_doctor_explains_the_cores_it_is_given(invoke: Invoke, reasons: list[str]) -> None:
    core = min(os.sched_getaffinity(0))
    given = ("--host-cores", str(core), "--device-cores", str(core))
    assert invoke("doctor", *given).code == 0
    assert "builds and measurements take turns" in reasons[0]


@pytest.mark.parametrize("found", [[JoinedCores((0, 1), Interval(1.6, 1.5, 1.7))], []])
def test_doctor_says_where_a_server_uses_cores_as_before(
    invoke: Invoke, modules: Modules, tmp_path: Path, found: list[JoinedCores]
) -> None:
    def examine(choice: LayoutChoice, home: Path) -> dict[str, Any]:
        save_joined(found, home)
        return {"checks": []}

    modules("tunefleet.devices.doctor", examine=examine)
    with ServerSocket(Home(tmp_path), lambda asked: ServerReply()):
        ended = invoke("doctor", "--home", str(tmp_path))
    assert ended.code == 0
    assert ("tunefleet serve --stop" in ended.err) == bool(found)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("--device-cores 0-x", "'0-x' is not a list of cores: cannot read '0-x'"),
        ("--host-cores 60000", "core 60000 for hosts is not usable"),
        ("--threads 60000", "60000 threads cannot run on"),
    ],
)
def test_doctor_refuses_what_cannot_be(
    invoke: Invoke, reasons: list[str], given: str, text: str
) -> None:
    ended = invoke("doctor", *given.split())
    assert (ended.code, ended.err.count("\n"), reasons) == (2, 1, [])
    assert text in ended.err


def test_networks_describes_the_whole_zoo(invoke: Invoke) -> None:
    assert set(names()) == set(ABOUT)
    lines = invoke("networks").out.splitlines()
    assert [line.split()[0] for line in lines] == [f"zoo:{name}" for name in names()]


def test_version_names_the_toolchain(invoke: Invoke) -> None:
    assert invoke("version").out.startswith("tunefleet 0.")
    assert "apache-tvm" in json.loads(invoke("version", "--json", "-").out)


def test_jobs_of_a_new_home_are_none_and_create_nothing(invoke: Invoke, tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert "no jobs yet" in invoke("jobs", "--home", str(home)).out
    assert not home.exists()


def test_report_of_nothing_is_an_input_error(invoke: Invoke) -> None:
    ended = invoke("report", "a" * 32)
    assert (ended.code, ended.out) == (2, "")


def test_report_prints_the_path_of_the_page(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "artifacts" / ("a" * 32)
    found = SimpleNamespace(
        path=path,
        report=path / "report.html",
        manifest=path / "artifact.json",
        result={"network": {"name": "tiny_cnn"}, "artifact": "/elsewhere"},
    )

    def read_artifact(path: Path, signed_by: Path | None) -> SimpleNamespace:
        if path != found.path:
            raise InputError(f"no artifact at {path}")
        return found

    monkeypatch.setattr("tunefleet.artifacts.opening.read_artifact", read_artifact)
    given = ("report", "a" * 32, "--home", str(tmp_path))
    assert invoke(*given, "--open-path").out == f"{found.path / 'report.html'}\n"
    shown = invoke(*given).out
    assert "tiny_cnn" in shown
    assert "/elsewhere" not in shown


def test_no_command_shows_the_help(invoke: Invoke) -> None:
    assert invoke().out == invoke("--help").out


def test_an_unknown_command_is_one_line(invoke: Invoke) -> None:
    ended = invoke("bogus")
    assert (ended.code, ended.err.count("\n")) == (2, 1)


@pytest.mark.parametrize("header", [b"{'shape': , 3, 1), }", b"{", b"'" * 50, b"\xff\xfe", b""])
def test_an_array_with_a_header_that_is_none_is_refused(header: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    with pytest.raises(InputError, match=r"is not a \.npy file of numbers"):
        read_array(path)
