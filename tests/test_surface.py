"""What Python sees of the package: names, signatures, docstrings, representations."""

from __future__ import annotations

import inspect
import subprocess
import sys
from inspect import Parameter
from pathlib import Path

import pytest

import tunefleet
from tunefleet import BenchmarkContext, Session, from_network, tune
from tunefleet.core.result import Evaluation, ResultNetwork, RunResult, of_shape
from tunefleet.core.statistics import Interval
from tunefleet.errors import InputError
from tunefleet.runs.request import search_request, shape_request
from tunefleet.runs.tuning import Tuned


def parameters(function) -> dict[str, Parameter]:
    return {
        name: parameter
        for name, parameter in inspect.signature(function).parameters.items()
        if name != "self"
    }


def shared(function, other) -> list[tuple[str, object, object]]:
    """The name, default and annotation of each parameter of `other`, as `function` has it."""
    own = parameters(function)
    return [(n, own[n].default, own[n].annotation) for n in parameters(other) if n in own]


def told(function, names=None) -> list[tuple[str, object, object]]:
    chosen = parameters(function)
    return [(n, p.default, p.annotation) for n, p in chosen.items() if names is None or n in names]


PUBLIC = (tune, from_network, Session, Session.from_network, Session.autotune)


@pytest.mark.parametrize("function", PUBLIC, ids=lambda f: f.__qualname__)
def test_every_argument_has_a_name(function) -> None:
    kinds = {parameter.kind for parameter in parameters(function).values()}
    assert not kinds & {Parameter.VAR_KEYWORD, Parameter.VAR_POSITIONAL}


@pytest.mark.parametrize("function", PUBLIC, ids=lambda f: f.__qualname__)
def test_the_docstring_names_every_argument(function) -> None:
    documentation = inspect.getdoc(function) or ""
    if function is from_network:
        documentation += inspect.getdoc(Session.from_network) or ""
    missing = [name for name in parameters(function) if f"`{name}" not in documentation]
    assert missing == []


def test_autotune_and_tune_ask_for_a_search_as_one() -> None:
    assert shared(Session.autotune, search_request) == told(search_request)
    assert shared(tune, search_request) == told(search_request)


def test_a_network_is_imported_with_the_same_arguments_everywhere() -> None:
    importing = told(Session.from_network)
    assert shared(from_network, Session.from_network) == importing
    assert shared(from_network, Session) == told(Session)
    of_files = [
        each for each in importing if each[0] not in ("network", "example_inputs", "dynamic")
    ]
    assert shared(tune, Session.from_network) == of_files
    assert shared(Session.from_network, shape_request) == told(shape_request)


def test_the_package_shows_its_public_names_only() -> None:
    """In a process of its own: what is imported below it becomes an attribute."""
    code = (
        "import tunefleet; import tunefleet.runs.session; "
        "assert dir(tunefleet) == sorted([*tunefleet.__all__, '__version__']), dir(tunefleet); "
        "assert all(hasattr(tunefleet, name) for name in dir(tunefleet))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_editors_see_every_public_name() -> None:
    source = Path(tunefleet.__file__).read_text(encoding="utf-8")
    for name, home in tunefleet._HOMES.items():
        imported = next(line for line in source.splitlines() if f"from {home} import" in line)
        assert name in imported.split(" import ")[1].split(", ")


def test_a_context_shows_what_it_was_given() -> None:
    context = BenchmarkContext("cpu", threads=2, home="tuned")
    expected = "<tunefleet.BenchmarkContext 'cpu', threads=2, home='tuned', run "
    assert repr(context) == f"{expected}{context.run_id[:8]}>"


def test_a_session_shows_how_far_it_is() -> None:
    session = Session(BenchmarkContext("cpu", home="tuned"))
    run = session.context.run_id[:8]
    assert repr(session) == f"<tunefleet.Session state new, target cpu, run {run}>"
    assert f'<td style="text-align:left">{run}</td>' in session._repr_html_()


def test_a_result_is_shown_in_a_line_and_as_a_table() -> None:
    result = RunResult(
        run="a" * 32, network=ResultNetwork(name="net<b>"), delivered="tuned", trials=24,
        tuned_ms=Interval(1.5, 1.4, 1.6), why_no_speedup="other programs took 91 % of the cores",
    )  # fmt: skip
    assert repr(result) == (
        "<tunefleet.RunResult network net<b>, run aaaaaaaa, delivered tuned, trials 24, "
        "latency 1.5 ms, speed-up other programs took 91 % of the cores>"
    )
    assert "net&lt;b&gt;" in result._repr_html_()
    assert Tuned("net", result)._repr_html_() == result._repr_html_()
    assert "91 % of the cores" in Evaluation(**of_shape(result))._repr_html_()
    assert "no such file" in Tuned("net", error=InputError("no such file"))._repr_html_()
