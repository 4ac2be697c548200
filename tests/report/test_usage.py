from __future__ import annotations

import ast
import shlex
from dataclasses import replace

from tunefleet.core.result import ResultNetwork, RunResult
from tunefleet.report.usage import python_text, shell_text, usage

from .pages import Page

PATH = "/home/me/it's here/aaaa"
INPUTS = ("image: float32[1, 3, 16, 16]", "a b: int64[]")


def test_python_loads_the_artifact_and_makes_an_input_of_each_shape() -> None:
    text = python_text(PATH, INPUTS)
    ast.parse(text)
    assert f"tunefleet.load({PATH!r})" in text
    assert "np.zeros((1, 3, 16, 16), 'float32')" in text
    assert "np.zeros((), 'int64')" in text


def test_the_command_gives_a_file_for_each_input_in_their_order() -> None:
    first, second = shell_text(PATH, INPUTS).splitlines()
    expected = ["tunefleet", "run", PATH, "--input", "image.npy", "--input", "a-b.npy"]
    assert expected == shlex.split(first)
    assert shlex.split(second) == ["tunefleet", "evaluate", PATH]


def test_nothing_to_use_is_not_explained() -> None:
    assert usage(RunResult()) == ""


def test_paths_and_names_are_escaped_on_the_page() -> None:
    network = ResultNetwork(inputs=("<b>x: float32[1]", "no shape"))
    page = usage(replace(RunResult(), artifact="/a/<i>", network=network))
    assert "<b>" not in page
    assert "<i>" not in page
    assert "/a/<i>" in Page(page).text
