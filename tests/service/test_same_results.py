"""What is asked over HTTP gives what the local commands give: place, run, evaluate, timeline."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip(
    "fastapi", reason="the service is not installed: pip install tunefleet[service]"
)

from tests.runs.test_devices import registered
from tunefleet import connect, run_artifact, run_timeline
from tunefleet.cli.app import run
from tunefleet.client import Client
from tunefleet.client.calls import Call, done_by, me, value_of
from tunefleet.core.home import Home
from tunefleet.errors import InputError
from tunefleet.runs.calling import call_artifact
from tunefleet.runs.quotas import kept_bytes
from tunefleet.store import open_store

from ..networks import write_small
from .test_whole import serving

pytestmark = [pytest.mark.tvm, pytest.mark.frameworks, pytest.mark.slow]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("same")


@pytest.fixture(scope="module")
def service(place: Path) -> Iterator[tuple[str, str]]:
    """Of a home with a board beside this machine."""
    with registered(place / "home", 1), serving(place / "home") as (url, token):
        yield url, token


@pytest.fixture(scope="module")
def client(service: tuple[str, str]) -> Iterator[Client]:
    with connect(*service) as made:
        yield made


@pytest.fixture(scope="module")
def artifact(client: Client, place: Path) -> str:
    asked = {"budget": {"trials": 6}, "threads": 1}
    view = client.wait(client.submit(write_small(place / "small.onnx"), **asked)["id"])
    assert view["artifact"], view
    return str(view["artifact"])


@pytest.fixture
def image(place: Path) -> Path:
    file = place / "x.npy"
    np.save(file, np.random.default_rng(0).random((1, 3, 16, 16), np.float32))
    return file


@pytest.fixture
def signed_in(
    service: tuple[str, str],
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> str:
    """The URL of the service, where the commands are signed in."""
    url, token = service
    monkeypatch.setenv("XDG_CONFIG_HOME", str(place / "config"))
    (place / "token").write_text(token, encoding="utf-8")
    assert run(["login", url, "--token-file", str(place / "token")]) == 0
    capsys.readouterr()
    return url


def in_json(capsys: pytest.CaptureFixture[str], command: list[str]) -> Any:
    assert run(command) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def test_an_artifact_is_run_with_the_same_outputs(
    client: Client,
    artifact: str,
    image: Path,
    place: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    home = ["--home", str(place / "home")]
    command = ["run", artifact, "--input", str(image), "--json", "-"]
    here = in_json(capsys, [*command, *home, "--output", str(place / "here.npy")])
    there = client.call_artifact(artifact, [image], out=place / "there.npy")
    for value in (here, there):
        value["outputs"][0].pop("path")
    assert here == there
    assert np.array_equal(np.load(place / "here.npy"), np.load(place / "there.npy"))
    arrays = [np.load(image)]
    [output] = client.run_artifact(artifact, arrays)
    assert np.array_equal(output, run_artifact(artifact, arrays, place / "home")[0])


def test_what_was_built_of_it_is_fetched(client: Client, artifact: str, place: Path) -> None:
    built = client.build(write_small(place / "small.onnx"), threads=1)
    assert built.run != artifact
    assert (client.fetch(built.run, place) / "artifact.json").is_file()


def test_its_calls_are_timed(client: Client, artifact: str, image: Path) -> None:
    value = client.call_artifact(artifact, [image], repeat=5)
    assert value["repeats"] == 5
    assert 0 < value["latency_ms"]["low"] <= value["latency_ms"]["median"]
    [job] = [job for job in client.jobs() if job["kind"] == "run" and job["latency_ms"]]
    assert job["latency_ms"] == value["latency_ms"]["median"]


def wrong_inputs(place: Path) -> dict[str, list[Path]]:
    """Files of inputs that the artifact does not take, by what is wrong with them."""
    for name, array in (
        ("right", np.zeros((1, 3, 16, 16), np.float32)),
        ("shape", np.zeros((2, 2), np.float32)),
        ("dtype", np.zeros((1, 3, 16, 16), np.complex64)),
        ("words", np.array(["a", "b"])),
    ):
        np.save(place / f"{name}.npy", array)
    np.savez(place / "archive.npz", x=np.zeros((1, 3, 16, 16), np.float32))
    (place / "broken.npz").write_bytes((place / "archive.npz").read_bytes()[:200])
    (place / "broken.npy").write_bytes((place / "right.npy").read_bytes()[:200])
    files = {name: [place / f"{name}.npy"] for name in ("shape", "dtype", "words")}
    files |= {name: [place / name] for name in ("archive.npz", "broken.npz", "broken.npy")}
    return {**files, "one too many": [place / "right.npy"] * 2, "none": []}


def test_wrong_inputs_are_refused_as_they_are_here(
    client: Client, artifact: str, place: Path, signed_in: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for wrong, files in wrong_inputs(place).items():
        with pytest.raises(InputError) as there:
            client.call_artifact(artifact, files)
        with pytest.raises(InputError) as here:
            call_artifact(artifact, files, home=place / "home")
        if wrong in ("shape", "one too many", "none"):
            assert str(there.value) == str(here.value)
        inputs = [word for file in files for word in ("--input", str(file))]
        for at in (["--server", signed_in], ["--home", str(place / "home")]):
            assert run(["run", artifact, *inputs, *at]) == 2, wrong
            assert capsys.readouterr().err.count("\n") == 1
    with pytest.raises(InputError, match="no artifact"):
        client.call_artifact("a" * 32, [place / "right.npy"])


def test_outputs_need_room_in_the_quota_and_go_with_their_job(
    client: Client, artifact: str, image: Path, place: Path
) -> None:
    user, home = client.done(me())["name"], place / "home"
    client.call_artifact(artifact, [image], repeat=2)
    job = client.jobs(1)[0]
    folder = Home(home).outputs_of(user) / job["id"]
    assert [file.name for file in folder.iterdir()] == ["output.npy"]
    with closing(open_store(home)) as store:
        kept = kept_bytes(store, home, user)
        assert kept == store.holdings.stored_bytes(user) + sum(
            file.stat().st_size for file in Home(home).outputs.rglob("*.npy")
        )
    quota = {"quota": {"stored_bytes": kept + 10}}
    client.done(value_of(Call("PATCH", f"/v1/users/{user}", quota)))
    try:
        with pytest.raises(InputError, match="more would be too many"):
            client.call_artifact(artifact, [image], repeat=3)
    finally:
        client.done(value_of(Call("PATCH", f"/v1/users/{user}", {"quota": {}})))
    client.done(done_by(Call("DELETE", f"/v1/jobs/{job['id']}")))
    assert not folder.exists()


def test_an_artifact_is_measured_again(client: Client, artifact: str) -> None:
    evaluation = client.evaluate_artifact(artifact, rounds=2)
    assert evaluation.network == "small"
    assert evaluation.tuned_ms is not None


@pytest.mark.long
def test_a_network_is_placed_as_it_is_here(
    client: Client, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    network = write_small(place / "small.onnx")
    devices = {"local": "cpu", "board-0": "x86-64-v2"}
    there = client.place(network, devices, threads=1)
    command = ["place", str(network), "--threads", "1", "--json", "-", "--quiet"]
    command += ["--device", "local", "--device", "board-0=x86-64-v2"]
    here = in_json(capsys, [*command, "--home", str(place / "home")])
    assert shape_of(there) == shape_of(here)
    for what in ("schema", "network"):
        assert there[what] == here[what]
    assert [each["name"] for each in there["devices"]] == ["local", "board-0"]
    assert [task["shapes"] for task in there["tasks"]] == [t["shapes"] for t in here["tasks"]]
    with pytest.raises(InputError, match="two devices or more"):
        client.place(network, ["local"])
    with pytest.raises(InputError, match="board-7"):
        client.place(network, ["local", "board-7"])


def shape_of(value: Any) -> Any:
    """The names and the types of a JSON value. Figures differ from one measurement to the next, and
    what an earlier search of the same user left is missing elsewhere."""
    if isinstance(value, dict):
        return {key: shape_of(each) for key, each in value.items() if key not in FIGURES}
    if isinstance(value, list):
        return [shape_of(each) for each in value]
    return "figure" if value is None or isinstance(value, int | float) else type(value).__name__


#: What is there or not by what was measured.
FIGURES = frozenset({"ran", "predicted", "placement", "fastest_each", "pays", "typical_error"})


def test_the_timeline_is_that_of_the_local_command(
    client: Client, artifact: str, place: Path
) -> None:
    [job] = [job for job in client.jobs() if job["artifact"] == artifact]
    there, here = client.run_timeline(job["id"]), run_timeline(job["id"], place / "home")
    assert there["job"] == here["job"] == job["id"]
    assert there["resources"] == here["resources"]
    assert len(there["spans"]) == len(here["spans"])


def test_commands_ask_the_service(
    signed_in: str,
    artifact: str,
    image: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    url = signed_in
    value = in_json(
        capsys, ["run", artifact, "--input", str(image), "--server", url, "--json", "-"]
    )
    assert re.fullmatch("[0-9a-f]{32}", value["artifact"])
    assert run(["evaluate", artifact, "--rounds", "2", "--server", url]) == 0
    assert "small" in capsys.readouterr().out
    trusting = ["place", "zoo:tiny_cnn", "--device", "local", "--trust", "--server", url]
    assert run(trusting) == 2
    assert "takes no --trust" in capsys.readouterr().err
