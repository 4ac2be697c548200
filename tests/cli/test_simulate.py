from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tunefleet.scheduler.durations import Replay
from tunefleet.scheduler.policies import POLICIES

from .conftest import Invoke, Outcome


def figures(ended: Outcome) -> dict[str, Any]:
    assert (ended.code, ended.err) == (0, "")
    return json.loads(ended.out)


def test_the_table_compares_policies_and_says_what_limits(invoke: Invoke) -> None:
    ended = invoke("simulate", "--policy", "all")
    assert ended.code == 0
    assert all(name in ended.out for name in POLICIES)
    assert "what limits is the work of host" in ended.out


def test_one_job_leaves_client_and_target_idle_as_in_the_thesis(invoke: Invoke) -> None:
    found = figures(invoke("simulate", "--jobs", "1", "--policy", "sequential", "--json", "-"))
    (row,) = found["policies"]
    assert row["ratio"] == pytest.approx(1.0)
    assert row["utilisation"]["device"] == pytest.approx(39.5 / 91.8)
    assert row["completion_s"] == {"job0": pytest.approx(918.0)}


def test_repeated_policies_are_simulated_once_each(invoke: Invoke) -> None:
    arguments = ("--policy", "predictive", "--policy", "interleaved", "--policy", "predictive")
    found = figures(invoke("simulate", *arguments, "--json", "-"))
    assert [row["policy"] for row in found["policies"]] == ["predictive", "interleaved"]


def test_a_shared_machine_takes_the_sum_of_both_sides(invoke: Invoke) -> None:
    found = figures(invoke("simulate", "--shared", "--json", "-"))
    assert found["policies"][0]["lower_bound_s"] == pytest.approx(40 * 91.8)


def test_where_interference_is_allowed_all_jobs_run_the_same_stage_at_once(invoke: Invoke) -> None:
    asked = ("simulate", "--policy", "synchronous", "--allow-interference")
    found = figures(invoke(*asked, "--json", "-"))
    assert found["interference"] is True
    assert found["policies"][0]["makespan_s"] == pytest.approx(10 * 91.8)
    assert "what they do to each other is not simulated" in invoke(*asked).out


def test_the_spread_is_the_same_for_the_same_seed(invoke: Invoke) -> None:
    def makespan(*arguments: str) -> float:
        found = figures(invoke("simulate", "--json", "-", *arguments))
        return float(found["policies"][0]["makespan_s"])

    assert makespan("--spread", "0.5") == makespan("--durations", "spread", "--spread", "0.5")
    assert makespan("--spread", "0.5") != makespan("--spread", "0.5", "--seed", "1")
    assert makespan("--jobs", "1") < makespan("--no-look-ahead", "--jobs", "1")


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    path = tmp_path / "rounds.json"
    round_s = (1.0, 2.0, 3.0, 4.0)
    replay = Replay({("a", "x"): (round_s, round_s), ("b", "y"): (round_s,)})
    path.write_text(json.dumps(replay.to_json()))
    return path


def test_recorded_rounds_are_replayed_as_they_were(invoke: Invoke, recorded: Path) -> None:
    found = figures(invoke("simulate", "--durations", str(recorded), "--json", "-"))
    assert (found["jobs"], found["lanes"], found["rounds"]) == (2, 2, 3)
    assert found["policies"][0]["lower_bound_s"] == pytest.approx(21.0)


def test_recorded_rounds_are_dealt_to_as_many_jobs_as_asked_for(
    invoke: Invoke, recorded: Path
) -> None:
    arguments = ("--durations", str(recorded), "--jobs", "3", "--lanes", "2", "--rounds", "5")
    found = figures(invoke("simulate", *arguments, "--json", "-"))
    assert (found["jobs"], found["lanes"], found["rounds"]) == (3, 6, 30)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "start"), [("a.png", b"\x89PNG"), ("a.svg", b"<?xml"),
                                             ("a.html", b"<!doctype html>")])  # fmt: skip
def test_the_drawing_is_what_its_name_says(
    invoke: Invoke, tmp_path: Path, name: str, start: bytes
) -> None:
    out = tmp_path / name
    ended = invoke("simulate", "--rounds", "2", "--gantt", str(out))
    assert f"drawn in {out}" in ended.out
    assert out.read_bytes().startswith(start)


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        (("--jobs", "0"), "0 is not a positive number"),
        (("--policy", "magic"), "'magic' is not a policy"),
        (("--durations", "missing.json"), "cannot read missing.json"),
        (("--durations", "/dev/zero"), "/dev/zero has more than"),
        (("--durations", "thesis", "--spread", "1"), "--spread does not go with"),
        (("--spread", "-1"), "is not a positive number"),
        (("--seed", "-1"), "is negative"),
        (("--jobs", "100000", "--lanes", "1000"), "4,000,000,000 stages"),
        (("--gantt", "a.gif"), "does not end in .png"),
        (("--gantt", "missing/a.png"), "does not exist"),
        (("--gantt", "a.png", "--policy", "all"), "--gantt draws one policy"),
        (("--json", "missing/a.json"), "does not exist"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    invoke: Invoke, arguments: tuple[str, ...], cause: str
) -> None:
    ended = invoke("simulate", *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert cause in ended.err
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize("text", ["", "{", "[]", "\xff", "[" * 100_000])
def test_a_broken_file_of_durations_is_named(invoke: Invoke, tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(text.encode("latin-1"))
    ended = invoke("simulate", "--durations", str(path))
    assert ended.code == 2
    assert str(path) in ended.err
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize("suffix", ["png", "svg", "html"])
def test_hostile_names_in_a_file_steer_nothing(invoke: Invoke, tmp_path: Path, suffix: str) -> None:
    name = "<b>$x$\x1b[31m\ud800\n"
    path = tmp_path / "rounds.json"
    path.write_text(json.dumps(Replay({(name, name): ((1.0, 1.0, 1.0, 1.0),)}).to_json()))
    drawn = str(tmp_path / f"a.{suffix}")
    ended = invoke("simulate", "--durations", str(path), "--gantt", drawn)
    assert (ended.code, ended.err) == (0, "")
    assert "\x1b" not in ended.out


@pytest.mark.slow
def test_nothing_heavy_is_loaded() -> None:
    code = (
        "import sys; from tunefleet.cli.app import run; assert run(['simulate']) == 0; "
        "heavy = {'tvm', 'torch', 'sqlalchemy', 'numpy', 'matplotlib'} & set(sys.modules); "
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
