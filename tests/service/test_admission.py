"""Checks run beside the event loop, a few at once, and are joined."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tunefleet.core.importing import DEFAULT_IMPORT, ImportOptions
from tunefleet.core.shapes import ShapeRequest
from tunefleet.errors import InputError
from tunefleet.fleet.leases import Leases, machine_units
from tunefleet.runs.context import BenchmarkContext
from tunefleet.service.admission import Admission, CheckedImports
from tunefleet.service.problems import Refused
from tunefleet.store import open_store


@pytest.fixture
def admission(tmp_path: Path) -> Iterator[Admission]:
    with closing(open_store(tmp_path)) as store, closing(Admission(tmp_path, store)) as made:
        yield made


def test_the_loop_goes_on_and_who_asks_for_the_same_gets_the_same(admission: Admission) -> None:
    ends, calls = threading.Event(), list[int]()

    def check() -> str:
        calls.append(1)
        ends.wait(10)
        return "read"

    async def twice() -> list[str]:
        asked = [asyncio.create_task(admission.checked("ann", "a", check)) for _ in range(2)]
        await asyncio.sleep(0.05)
        asked[0].cancel()  # its sender is gone
        assert not asked[1].done()
        ends.set()
        return [await asked[1]]

    assert asyncio.run(twice()) == ["read"]
    assert calls == [1]


def test_a_user_has_a_few_and_others_are_not_refused(admission: Admission) -> None:
    ends = threading.Event()

    async def many() -> None:
        asked = [
            asyncio.create_task(admission.checked("ann", str(n), lambda: ends.wait(10)))
            for n in range(4)
        ]
        await asyncio.sleep(0.05)
        with pytest.raises(Refused, match="are being checked") as refused:
            await admission.checked("ann", "5", lambda: None)
        assert refused.value.status == 429
        other = asyncio.create_task(admission.checked("bob", "a", lambda: "bob"))
        ends.set()
        assert await other == "bob"
        await asyncio.gather(*asked)

    asyncio.run(many())


def test_what_a_check_raises_is_raised(admission: Admission) -> None:
    def check() -> None:
        raise InputError("no network", cure="send one")

    with pytest.raises(InputError, match="no network"):
        asyncio.run(admission.checked("ann", "a", check))


def test_a_check_waits_for_what_is_measured(admission: Admission, tmp_path: Path) -> None:
    units = machine_units(BenchmarkContext(home=tmp_path).likely_layout.device_units)

    async def waited() -> None:
        with closing(open_store(tmp_path)) as store, closing(Leases(store.coordination)) as leases:
            with leases.held(leases.claim(units), lambda event: None):
                asked = asyncio.create_task(admission.checked("ann", "a", lambda: "read"))
                await asyncio.sleep(0.3)
                assert not asked.done()
            assert await asked == "read"

    asyncio.run(waited())


def test_it_is_kept_with_which_options_a_network_was_imported(tmp_path: Path) -> None:
    checked, wide = CheckedImports(tmp_path, "ann"), ShapeRequest.of(dims=[("width", [4])])
    checked.keep("a" * 64, ImportOptions(wide))
    assert checked.has("a" * 64, ImportOptions(wide))
    assert not checked.has("a" * 64, DEFAULT_IMPORT)
    assert not CheckedImports(tmp_path, "bob").has("a" * 64, ImportOptions(wide))
