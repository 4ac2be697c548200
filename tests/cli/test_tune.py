from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.costmodel.cards import MEMBERS, a_card
from tunefleet.core.budget import Budget
from tunefleet.core.result import TaskResult
from tunefleet.core.settings import TuneSettings
from tunefleet.costmodel.registry import Registry
from tunefleet.errors import JobError
from tunefleet.runs.request import search_request

from .conftest import RESULT, FakeTuning, Invoke

pytestmark = pytest.mark.tvm


def test_the_default_budget_is_1000_trials(invoke: Invoke, tuning: FakeTuning) -> None:
    assert invoke("tune", "zoo:tiny_cnn", "--quiet").code == 0
    asked = tuning.asked
    assert asked["networks"] == ["zoo:tiny_cnn"]
    assert (asked["trials"], asked["minutes"]) == (None, None)
    assert search_request(asked["trials"], minutes=asked["minutes"]).budget == Budget(trials=1000)
    assert asked["settings"] == TuneSettings()


def test_minutes_alone_set_no_trials(invoke: Invoke, tuning: FakeTuning) -> None:
    invoke("tune", "zoo:tiny_cnn", "--quiet", "--minutes", "2.5")
    assert tuning.asked["trials"] is None
    assert tuning.asked["minutes"] == 2.5


def test_deadlines_and_priorities_are_of_all_networks_or_of_one(
    invoke: Invoke, tuning: FakeTuning
) -> None:
    given = "--deadline 90 --deadline zoo:vgg11?batch=4=1.5 --priority zoo:tiny_cnn=2 --quiet"
    assert invoke("tune", "zoo:tiny_cnn", "zoo:vgg11?batch=4", *given.split()).code == 0
    assert tuning.asked["deadlines_s"] == {"zoo:tiny_cnn": 5400, "zoo:vgg11?batch=4": 90}
    assert tuning.asked["priorities"] == {"zoo:tiny_cnn": 2}


@pytest.mark.parametrize(
    "given",
    [
        "--deadline soon",
        "--deadline 0",
        "--deadline nan",
        "--deadline a=1",
        "--deadline 1 --deadline 2",
        "--priority 1.5",
        "--priority zoo:tiny_cnn=1 --priority zoo:tiny_cnn=2",
    ],
)
def test_a_wrong_deadline_or_priority_is_refused_in_a_line(
    invoke: Invoke, tuning: FakeTuning, given: str
) -> None:
    ended = invoke("tune", "zoo:tiny_cnn", *given.split())
    assert (ended.code, ended.err.count("\n"), tuning.calls) == (2, 1, [])


def test_every_option_reaches_tune(invoke: Invoke, tuning: FakeTuning, tmp_path: Path) -> None:
    options = (
        "--target znver3 --threads 2 --trials 64 --minutes 3 --target-latency-ms 1.5 "
        "--trials-per-task 16 --device-minutes 2 --speedup 2 --most-lost 0.01 --batch 8 "
        "--first-batch 4 --profile-timeout 5 --build-timeout 6 --population 32 --generations 0 "
        "--seed 7 --cost-model random --no-transfer --device b1 --device b2 --device-kind cpu "
        "--device-key lab --new-job --detach --quiet "
        "--policy interleaved --look-ahead --host-cores 0,2-3 --device-cores 1 "
        "--shape x=1,8 --shape x=1,16 --dim a=1 --dim b=2 --dim b=3 "
        "--constant sr=16000 --constant flags=1,0.5,true --whole --trust "
        "--precision int8 --calibrate data.npz --inputs x.npz --deadline 2 --priority 1"
    )
    home = str(tmp_path)
    assert invoke("tune", "zoo:tiny_cnn?batch=4", *options.split(), "--home", home).code == 0
    assert tuning.context == {
        "target": "znver3",
        "device": ["b1", "b2"],
        "device_kind": "cpu",
        "device_key": "lab",
        "threads": 2,
        "host_cores": (0, 2, 3),
        "device_cores": (1,),
        "home": tmp_path,
    }
    asked = tuning.asked
    settings = asked.pop("settings")
    assert asked == {
        "networks": ["zoo:tiny_cnn?batch=4"],
        "shapes": {"x": [(1, 8), (1, 16)]},
        "dims": {"a": [1], "b": [2, 3]},
        "constants": {"sr": [16000], "flags": [1, 0.5, 1]},
        "whole": True,
        "trust": True,
        "precision": "int8",
        "calibrate": Path("data.npz"),
        "inputs": [Path("x.npz")],
        "trials": 64,
        "minutes": 3.0,
        "target_latency_ms": 1.5,
        "trials_per_task": 16,
        "device_minutes": 2.0,
        "speedup": 2.0,
        "most_lost": 0.01,
        "new_job": True,
        "deadlines_s": {"zoo:tiny_cnn?batch=4": 120},
        "priorities": {"zoo:tiny_cnn?batch=4": 1},
        "policy": "interleaved",
        "look_ahead": True,
        "allow_interference": False,
        "detach": True,
    }
    search = settings.search
    assert (search.batch, search.first_batch, search.population) == (8, 4, 32)
    assert (search.generations, search.seed, search.cost_model) == (0, 7, "random")
    assert (settings.build.timeout_s, settings.measure.timeout_s) == (6.0, 5.0)
    assert settings.transfer is False


def test_home_comes_from_the_environment(
    invoke: Invoke, tuning: FakeTuning, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNEFLEET_HOME", str(tmp_path))
    invoke("tune", "zoo:tiny_cnn", "--quiet")
    assert tuning.context["home"] == tmp_path


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("-1 is not a positive number", "--trials -1"),
        ("0 is not a positive number", "--trials 0"),
        ("invalid value for '--trials'", "--trials x"),
        ("0.0 is not a positive number", "--minutes 0"),
        ("nan is not a positive number", "--minutes nan"),
        ("inf is not a positive number", "--minutes inf"),
        ("0.0 is not a positive number", "--target-latency-ms 0"),
        ("0 is not a positive number", "--batch 0"),
        ("-1 is negative", "--seed -1"),
        ("-1 is negative", "--generations -1"),
        ("0 is not a positive number", "--threads 0"),
        ("choose xgb or random", "--cost-model svm"),
        ("no cost model 'nobody'", "--pretrained nobody"),
        ("/nowhere does not exist", "--json /nowhere/x.json"),
        ("/tmp is a directory", "--json /tmp"),
        ("/dev/null is a file", "--home /dev/null"),
        ("no such option", "--bogus"),
    ],
)
def test_a_bad_value_is_refused_before_tuning(
    invoke: Invoke, tuning: FakeTuning, text: str, options: str
) -> None:
    ended = invoke("tune", "zoo:tiny_cnn", *options.split())
    assert ended.code == 2
    assert ended.out == ""
    assert ended.err.startswith("error: ")
    assert text in ended.err
    assert ended.err.count("\n") == 1
    assert tuning.calls == []


@pytest.mark.parametrize(
    ("card", "said"),
    [
        ({"features": "sequences/1"}, "mine takes features of sequences/1, a search has tilings/1"),
        ({"features": "tilings/1", "kind": "mlp"}, "cannot be loaded as mlp: not an MLP"),
    ],
)
def test_a_model_that_steers_no_search_is_refused_before_tuning(
    invoke: Invoke, tuning: FakeTuning, tmp_path: Path, card: dict[str, Any], said: str
) -> None:
    Registry(tmp_path / "costmodels").add(a_card(**card), MEMBERS)
    ended = invoke("tune", "zoo:tiny_cnn", "--pretrained", "mine", "--home", str(tmp_path))
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert said in ended.err
    assert tuning.calls == []


@pytest.mark.parametrize("network", ["nope", "nope.onnx", "zoo:nope", "zoo:tiny_cnn?size=x"])
def test_a_wrong_network_is_refused_before_tuning(
    invoke: Invoke, tuning: FakeTuning, network: str
) -> None:
    ended = invoke("tune", network)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert tuning.calls == []


def test_json_on_stdout_is_alone_there(invoke: Invoke, tuning: FakeTuning) -> None:
    ended = invoke("tune", "zoo:tiny_cnn", "--json", "-")
    assert json.loads(ended.out) == [RESULT.to_dict()]
    assert "trials" in ended.err


def test_json_in_a_file_comes_with_the_tables(
    invoke: Invoke, tuning: FakeTuning, tmp_path: Path
) -> None:
    path = tmp_path / "result.json"
    ended = invoke("tune", "zoo:tiny_cnn", "--quiet", "--json", str(path))
    assert json.loads(path.read_text()) == [RESULT.to_dict()]
    assert "conv2d+add" in ended.out
    assert "/somewhere/aaaa" in ended.out


def test_quiet_shows_only_warnings_on_stderr(invoke: Invoke, tuning: FakeTuning) -> None:
    ended = invoke("tune", "zoo:tiny_cnn", "--quiet")
    assert ended.err == "warning: the reference kernel moved by 4.1 %, a batch is measured again\n"


def test_a_failed_job_has_its_exit_code(invoke: Invoke, tuning: FakeTuning) -> None:
    tuning.errors["zoo:tiny_cnn"] = JobError("the network differs", cure="report it")
    ended = invoke("tune", "zoo:tiny_cnn", "--quiet")
    assert ended.code == 6
    assert ended.err.endswith("error: the network differs; report it\n")
    assert ended.out == ""


def test_json_of_a_failed_job_has_the_same_form(invoke: Invoke, tuning: FakeTuning) -> None:
    tuning.errors["zoo:tiny_cnn"] = JobError("the network differs", cure="report it")
    ended = invoke("tune", "zoo:tiny_cnn", "--quiet", "--json", "-")
    assert ended.code == 6
    assert json.loads(ended.out) == [{"error": "the network differs; report it"}]


def test_several_networks_end_with_a_table_and_the_first_error(
    invoke: Invoke, tuning: FakeTuning, tmp_path: Path
) -> None:
    networks = ["zoo:tiny_cnn", "zoo:resnet18", "zoo:mobilenet_v2"]
    tuning.errors["zoo:resnet18"] = JobError("it is wrong", cure="no")
    tuning.errors["zoo:mobilenet_v2"] = JobError("it is bad", cure="no")
    path = tmp_path / "result.json"
    options = ["--quiet", "--policy", "sequential", "--json", str(path)]
    ended = invoke("tune", *networks, *options)
    assert ended.code == JobError.exit_code
    assert "it is wrong" in ended.out
    *warnings, last = ended.err.splitlines()
    assert last == "error: it is wrong; no"
    assert len(warnings) == len(networks)
    for network, warning in zip(networks, warnings, strict=True):
        assert warning.startswith(f"{network.removeprefix('zoo:')}: warning: ")
    assert tuning.asked["networks"] == networks
    assert tuning.asked["policy"] == "sequential"
    told = json.loads(path.read_text())
    assert told[0] == RESULT.to_dict()
    assert [list(entry) for entry in told[1:]] == [["error"], ["error"]]
    assert "it is wrong" in told[1]["error"]
    assert "it is bad" in told[2]["error"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"trials": 0, "stopped": "nothing is left to try"}, "nothing is left to try"),
        (
            {
                "trials": 3,
                "failures": {"build_error": 3},
                "failure_texts": {"build_error": (("ld: cannot open", 3),)},
            },
            "all 3 trials failed, most often by build error: ld: cannot open",
        ),
    ],
)
def test_a_search_that_measured_nothing_is_no_success(
    invoke: Invoke,
    tuning: FakeTuning,
    changes: dict[str, Any],
    said: str,
) -> None:
    tuning.result = replace(RESULT, tasks=(TaskResult(name="conv2d"),), **changes)
    ended = invoke("tune", "zoo:tiny_cnn", "--quiet")
    assert ended.code == 6
    assert said in ended.err
