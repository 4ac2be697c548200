"""The client of a service: what is lost on the way is asked again, and nothing happens twice."""

from __future__ import annotations

import asyncio
import json
import time
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from tunefleet.client import AsyncClient, Client, tries
from tunefleet.client.calls import Call, value_of
from tunefleet.client.packing import as_one_file
from tunefleet.core.events import JobEnded, Note
from tunefleet.core.job import JobState
from tunefleet.errors import InputError, JobError, RetryElsewhereError

from .conftest import World


class Cut(httpx.AsyncBaseTransport):
    """Passes requests on to an application, and loses the answers of some."""

    def __init__(self, app: Any) -> None:
        self._inner = httpx.ASGITransport(app)
        self.lost: list[str] = []
        self.seen: list[str] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.seen.append(request.method)
        answer = await self._inner.handle_async_request(request)
        if self.lost and self.lost[0] == request.method:
            self.lost.pop(0)
            raise httpx.ReadError("cut off")
        return answer


@pytest.fixture
def cut(world: World, monkeypatch: pytest.MonkeyPatch) -> Cut:
    monkeypatch.setattr(tries, "PAUSES_S", (0.0, 0.0, 0.0))
    return Cut(world.client.app)


def client_of(world: World, cut: Cut, name: str = "ann") -> AsyncClient:
    token = world.user(name)["Authorization"].removeprefix("Bearer ")
    return AsyncClient("http://testserver", token, transport=cut)


def test_an_upload_goes_on_where_its_answer_was_lost(
    world: World, cut: Cut, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tunefleet.client import calls

    monkeypatch.setattr(calls, "_PART_BYTES", 1000)
    file = tmp_path / "net.onnx"
    file.write_bytes(bytes(3500))

    async def sent() -> str:
        async with client_of(world, cut) as client:
            cut.lost = ["PATCH", "PATCH"]
            return await client.upload(file)

    digest = asyncio.run(sent())
    network = world.store.holdings.network("ann", digest)
    assert network is not None
    assert (world.home / network.place).read_bytes() == bytes(3500)
    assert not cut.lost


def test_a_job_whose_answer_was_lost_is_asked_for_once(world: World, cut: Cut) -> None:
    async def asked() -> Any:
        async with client_of(world, cut) as client:
            cut.lost = ["POST"]
            return await client.submit("zoo:tiny_cnn", budget={"trials": 4}, threads=1)

    view = asyncio.run(asked())
    assert cut.seen == ["POST", "POST"]
    assert [job.job_id for job in world.store.jobs.page()] == [view["id"]]


def test_a_wait_is_cut_as_often_as_the_service_begins_again(world: World, cut: Cut) -> None:
    async def asked() -> Any:
        async with client_of(world, cut) as client:
            view = await client.submit("zoo:tiny_cnn", budget={"trials": 4}, threads=1)
            world.store.jobs.finish(view["id"], JobState.FAILED, {})
            cut.lost = ["GET"] * 5  # more than the client's tries
            return await client.wait(view["id"])

    assert asyncio.run(asked())["state"] == "failed"
    assert not cut.lost


def test_events_are_seen_once_though_answers_are_lost(world: World, cut: Cut) -> None:
    async def seen() -> list[Any]:
        async with client_of(world, cut) as client:
            view = await client.submit("zoo:tiny_cnn", budget={"trials": 4}, threads=1)
            notes = [Note(str(n)) for n in range(5)]
            world.store.events.append(view["id"], time.time(), notes)
            world.store.jobs.finish(view["id"], JobState.FAILED, {"stopped": "a test"})
            world.store.events.append(view["id"], time.time(), [JobEnded()])
            cut.lost = ["GET"]
            told = [event async for event in client.events(view["id"])]
            with pytest.raises(JobError, match="failed: a test"):
                tries.result_of(await client.wait(view["id"]))
            return told

    told = asyncio.run(seen())
    assert [event.get("text") for event in told] == ["0", "1", "2", "3", "4", None]


def test_refusals_are_errors_of_the_tree(world: World, cut: Cut) -> None:
    async def refused() -> None:
        async with client_of(world, cut) as client:
            with pytest.raises(InputError, match="no job"):
                await client.job("a" * 32)
            with pytest.raises(InputError, match="is not there"):
                await client.upload("missing.onnx")
            cut.lost = ["GET"] * 9
            with pytest.raises(RetryElsewhereError, match="does not answer"):
                await client.job("a" * 32)

    asyncio.run(refused())


def test_a_folder_and_weights_beside_a_network_are_packed_the_same_each_time(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "net"
    folder.mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (folder / name).write_text("{}", encoding="utf-8")
    (folder / "pytorch_model.bin").write_bytes(b"pickle")
    packed = []
    for _ in range(2):
        with as_one_file(folder) as archive:
            packed.append(archive.read_bytes())
            names = zipfile.ZipFile(archive).namelist()
        time.sleep(0.01)
    assert archive.name == "net.zip"
    assert names == ["net/config.json", "net/model.safetensors", "net/tokenizer.json"]
    assert packed[0] == packed[1]
    file = tmp_path / "a.npy"
    file.write_bytes(b"x")
    with as_one_file(file) as same:
        assert same == file


def test_notes_say_how_far_an_upload_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from tunefleet.client import calls

    monkeypatch.setattr(calls, "_PART_BYTES", 1000)
    file = tmp_path / "net.onnx"
    file.write_bytes(bytes(2500))
    operation, received, notes = calls.upload(file), 0, list[str]()
    call = next(operation)
    with suppress(StopIteration):
        while True:
            received += len(call.content or b"")
            status: dict[str, Any] = {"offset": received, "network": None}
            status["network"] = {} if received == 2500 else None
            call = operation.send(calls.Answer(200, {}, json.dumps(status).encode()))
            notes.append(call.note)
    expected = ["uploading net.onnx: 0 %", "uploading net.onnx: 40 %"]
    assert notes == [*expected, "uploading the end of net.onnx and checking it"]


def test_the_client_passes_notes_on() -> None:
    notes: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={})

    with Client("http://testserver", "tf_x", transport=httpx.MockTransport(answer)) as client:
        client.notify = notes.append
        client.done(value_of(Call("GET", "/v1/me", note="asking")))
        client.done(value_of(Call("GET", "/v1/me")))
    assert notes == ["asking"]
