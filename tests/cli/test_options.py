"""The options that no command takes yet, on a command of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer

from tunefleet.cli import options, parsing
from tunefleet.cli.app import app
from tunefleet.cli.outcome import guard
from tunefleet.scheduler import policies
from tunefleet.scheduler.names import POLICY_NAMES

from .conftest import Invoke


def given(*arguments: str) -> tuple[int, dict[str, Any]]:
    """The exit code, and what the command got."""
    got: dict[str, Any] = {}
    app = typer.Typer(add_completion=False)

    @app.command()
    def tune(
        networks: options.Networks,
        policy: options.Policy = "predictive",
        look_ahead: options.LookAhead = None,
        host_cores: options.HostCores = None,
        device_cores: options.DeviceCores = None,
    ) -> None:
        got.update(locals())
        del got["got"]

    command = typer.main.get_command(app)
    code = guard(lambda _: command.main(list(arguments), standalone_mode=False))
    return code, got


def test_one_network_is_enough() -> None:
    assert given("a.onnx") == (
        0,
        {
            "networks": ["a.onnx"],
            "policy": "predictive",
            "look_ahead": None,
            "host_cores": None,
            "device_cores": None,
        },
    )


def test_options_come_between_networks() -> None:
    code, got = given("a", "--policy", "sequential", "zoo:b", "--look-ahead", "--host-cores", "0,2")
    assert code == 0
    assert got["networks"] == ["a", "zoo:b"]
    assert (got["policy"], got["look_ahead"]) == ("sequential", True)
    assert parsing.core_numbers(got["host_cores"]) == (0, 2)
    assert parsing.core_numbers(got["device_cores"]) is None


def flags(command: Any) -> set[str]:
    found = {flag for parameter in command.params for flag in parameter.opts}
    return found.union(*map(flags, getattr(command, "commands", {}).values()))


def test_flags_are_lower_case_with_any_version_of_typer() -> None:
    # typer 0.27 took the case of a metavar that is the name: `--TARGET TARGET`.
    found = {flag for flag in flags(typer.main.get_command(app)) if flag.startswith("-")}
    assert {"--target", "--name"} <= found
    assert found == {flag.lower() for flag in found}


def test_every_policy_of_the_scheduler_can_be_named() -> None:
    assert set(policies.POLICIES) == set(POLICY_NAMES)


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        (
            "'fair' is not a policy, choose sequential, synchronous, interleaved or predictive",
            "a --policy fair",
        ),
        ("'3-1' is not a list of cores: 3-1 runs backwards", "a --host-cores 3-1"),
        ("'a' is not a list of cores: cannot read 'a'; write it like", "a --device-cores a"),
        ("a.onnx is given twice", "a.onnx b a.onnx"),
        ("missing argument 'NETWORK'", "--look-ahead"),
    ],
)
def test_bad_input_is_one_line(
    capsys: pytest.CaptureFixture[str], text: str, arguments: str
) -> None:
    assert given(*arguments.split()) == (2, {})
    told = capsys.readouterr().err
    assert text in told
    assert told.count("\n") == 1


@pytest.mark.parametrize(
    "given", [("--dim", "width"), ("--dim", "width="), ("--dim", "w=x"), ("--shape", "x=1,-2")]
)
def test_shapes_that_are_none_are_refused_at_once(invoke: Invoke, given: tuple[str, str]) -> None:
    ended = invoke("tune", "zoo:tiny_cnn", *given)
    assert ended.code == 2
    assert "such as" in ended.err


def test_shapes_of_one_input_are_kept_in_their_order() -> None:
    given = ["x=1,3", "mask=", "x=2,3"]
    assert parsing.by_input(given) == {"x": [(1, 3), (2, 3)], "mask": [()]}
    assert parsing.by_input(None) == {}


def test_values_of_one_dimension_are_joined() -> None:
    assert parsing.by_dimension(["n=1,2", "m=7", "n=4"]) == {"n": [1, 2, 4], "m": [7]}


@pytest.mark.parametrize("refused", ["=1", "x", "x=-1", "x=1.5", "x=1,,3", "x=1,"])
def test_shapes_without_a_name_or_whole_numbers_are_refused(refused: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not a name and numbers"):
        parsing.by_input([refused])


def test_no_number_is_not_negative() -> None:
    assert parsing.not_negative(None) is None
    assert parsing.not_negative(0) == 0
    with pytest.raises(typer.BadParameter, match="-1 is negative"):
        parsing.not_negative(-1)
    with pytest.raises(typer.BadParameter, match="nan is not a number"):
        parsing.not_negative(float("nan"))


def test_devices_with_targets_of_their_own_are_contexts_of_their_own(tmp_path: Path) -> None:
    from tunefleet.cli.contexts import contexts_of

    given = {"target": "native", "device_kind": "", "home": tmp_path}
    (alone,) = contexts_of({**given, "device": ["local=llvm -mcpu=haswell"]})
    assert (alone.target_text, alone.device_names) == ("llvm -mcpu=haswell", ("local",))
    both = contexts_of({**given, "device": ["local", "local=llvm -mcpu=haswell"]})
    assert [each.target_text for each in both] == ["native", "llvm -mcpu=haswell"]
    (default,) = contexts_of({**given, "device": []})
    assert (default.target_text, default.device_names) == ("native", ())
