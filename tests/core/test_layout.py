from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunefleet.core.layout import (
    LayoutChoice,
    MachineLayout,
    choose_layout,
    format_cores,
    joined,
    parse_cores,
)
from tunefleet.errors import InputError

FOUR = {core: core for core in range(4)}
#: Four physical cores with two hyperthreads each, numbered as Linux does: 0 and 4 are one core.
EIGHT = {core: core % 4 for core in range(8)}


def chosen(siblings: dict[int, int], **wishes: object) -> LayoutChoice:
    return choose_layout(sorted(siblings), siblings, **wishes)  # type: ignore[arg-type]


def test_by_default_everything_runs_everywhere_in_turns() -> None:
    choice = chosen(FOUR)
    assert choice.layout.host_cores == choice.layout.device_cores == (0, 1, 2, 3)
    assert choice.threads == 4
    assert choice.reason == (
        "code is tuned for all 4 cores, so measurements need them all: "
        "builds and measurements take turns"
    )


def test_hyperthreads_are_one_unit_and_one_thread() -> None:
    choice = chosen(EIGHT)
    assert choice.layout.device_units == {"core0", "core1", "core2", "core3"}
    assert (choice.threads, choice.layout.builders) == (4, 8)


def test_joined_cores_are_one_unit_and_hyperthreads_stay_one() -> None:
    assert joined(FOUR, [(0, 2), (2, 3), (3, 9)]) == {0: 0, 1: 1, 2: 0, 3: 0}
    assert joined(EIGHT, [(4, 5)]) == {0: 0, 1: 0, 2: 2, 3: 3, 4: 0, 5: 0, 6: 2, 7: 3}


def test_the_device_shares_no_joined_core_with_hosts() -> None:
    layout = chosen(joined(FOUR, [(0, 2), (1, 3)]), threads=1).layout
    assert (layout.host_cores, layout.device_cores) == ((0, 2), (1, 3))
    assert not layout.time_shared


@pytest.mark.parametrize(
    ("siblings", "why"),
    [
        ({0: 0}, "code is tuned for the only core, so measurements need it"),
        ({0: 0, 1: 1}, "code is tuned for both cores, so measurements need both"),
        (EIGHT, "code is tuned for all 4 physical cores, so measurements need them all"),
    ],
)
def test_the_reason_counts_cores_as_people_do(siblings: dict[int, int], why: str) -> None:
    assert chosen(siblings).reason == f"{why}: builds and measurements take turns"


def test_fewer_threads_give_the_device_the_last_cores_to_itself() -> None:
    choice = chosen(FOUR, threads=1)
    assert (choice.layout.host_cores, choice.layout.device_cores) == ((0, 1, 2), (3,))
    assert choice.reason == (
        "hosts run on cores 0-2, the device with 1 thread on core 3: builds go on while it measures"
    )


def test_the_device_gets_both_hyperthreads_of_its_cores() -> None:
    layout = chosen(EIGHT, threads=2).layout
    assert (layout.host_cores, layout.device_cores) == ((0, 1, 4, 5), (2, 3, 6, 7))


@pytest.mark.parametrize("threads", [4, 8])
def test_no_core_is_spare_with_as_many_threads_as_physical_cores(threads: int) -> None:
    choice = chosen(EIGHT, threads=threads)
    assert choice.layout.host_cores == choice.layout.device_cores == tuple(range(8))
    assert choice.threads == threads


@pytest.mark.parametrize(
    ("given_cores", "other"), [((0,), (1, 2, 3)), ((2, 3), (0, 1)), ((0, 1, 2, 3), (0, 1, 2, 3))]
)
def test_whoever_is_not_placed_gets_the_rest(given_cores: object, other: object) -> None:
    assert chosen(FOUR, device_cores=given_cores).layout.host_cores == other
    assert chosen(FOUR, host_cores=given_cores).layout.device_cores == other


def test_the_rest_leaves_the_other_hyperthreads_alone() -> None:
    assert chosen(EIGHT, device_cores=(3,)).layout.host_cores == (0, 1, 2, 4, 5, 6)


@pytest.mark.parametrize(
    ("host", "device", "why"),
    [
        ((0, 1, 2), (2, 3), "hosts (cores 0-2) and the device (cores 2-3) share core 2"),
        ((1, 2), (1, 2), "hosts and the device run on the same cores 1-2"),
        (
            (0, 1),
            (4,),
            "hosts (cores 0-1) and the device (core 4) run on hyperthreads of the same physical "
            "core",
        ),
    ],
)
def test_cores_in_common_are_time_shared(host: object, device: object, why: str) -> None:
    choice = chosen(EIGHT, host_cores=host, device_cores=device)
    assert choice.layout.time_shared
    assert choice.reason == f"{why}: builds and measurements take turns"


@pytest.mark.parametrize(
    ("wishes", "text"),
    [
        ({"device_cores": ()}, "the device got no core; this process may use cores 0-3; give"),
        ({"host_cores": (2, 7)}, "core 7 for hosts is not usable; this process may use cores 0-3"),
        ({"device_cores": (4, 5, 6)}, "cores 4-6 for the device are not usable; this process"),
        ({"threads": 5}, "5 threads cannot run on cores 0-3, which the device has; use --threads"),
        ({"threads": 2, "device_cores": (1,)}, "2 threads cannot run on core 1, which"),
        ({"threads": 0}, "0 threads cannot run on"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(wishes: dict[str, object], text: str) -> None:
    with pytest.raises(InputError) as caught:
        chosen(FOUR, **wishes)
    assert str(caught.value).startswith(text)
    assert "\n" not in str(caught.value)


def test_a_layout_needs_cores() -> None:
    with pytest.raises(ValueError, match="0 cores"):
        MachineLayout((), (0,), frozenset(), frozenset({"core0"}))


@pytest.mark.parametrize(
    ("text", "cores"), [("0", (0,)), ("0,2-3", (0, 2, 3)), (" 3 , 1-1,3", (1, 3))]
)
def test_a_list_of_cores_is_read(text: str, cores: object) -> None:
    assert parse_cores(text) == cores


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", "cannot read ''"),
        ("0,", "cannot read ''"),
        ("0,x", "cannot read 'x'"),
        ("-1", "cannot read '-1'"),
        ("3-2", "3-2 runs backwards"),
        ("0-99999999", "no machine has a core 99999999"),
        ("\u0663", "cannot read"),
    ],
)
def test_what_is_no_list_of_cores_is_refused(text: str, cause: str) -> None:
    with pytest.raises(InputError, match="is not a list of cores") as caught:
        parse_cores(text)
    assert cause in str(caught.value)


@given(st.sets(st.integers(0, 200), min_size=1))
def test_a_list_of_cores_reads_back(cores: set[int]) -> None:
    assert parse_cores(format_cores(cores)) == tuple(sorted(cores))


@st.composite
def wishes(draw: st.DrawFn) -> tuple[dict[int, int], dict[str, object]]:
    cores = draw(st.lists(st.integers(0, 15), min_size=1, max_size=8, unique=True))
    siblings = {core: draw(st.integers(0, 5)) for core in cores}
    some = st.none() | st.sets(st.sampled_from(cores), min_size=1)
    asked = {"host_cores": draw(some), "device_cores": draw(some)}
    return siblings, asked | {"threads": draw(st.none() | st.integers(1, 9))}


@given(wishes())
def test_units_are_disjoint_or_said_to_be_time_shared(
    case: tuple[dict[int, int], dict[str, object]],
) -> None:
    siblings, asked = case
    try:
        choice = chosen(siblings, **asked)
    except InputError:
        if asked["threads"] is None:
            raise
        return
    layout = choice.layout
    assert set(layout.host_cores) | set(layout.device_cores) <= set(siblings)
    assert 1 <= choice.threads <= len(layout.device_cores)
    physical_in_common = {siblings[core] for core in layout.host_cores} & {
        siblings[core] for core in layout.device_cores
    }
    assert layout.time_shared == bool(physical_in_common)
    assert choice.reason.endswith("take turns") == layout.time_shared
    for key in ("host_cores", "device_cores"):
        if asked[key] is not None:
            assert set(getattr(layout, key)) == asked[key]
