from __future__ import annotations

import sys
import textwrap
import threading
import types

import pytest

from tunefleet.core.budget import Budget
from tunefleet.core.events import JobEnded, JobOpened, LaneUpdated, Note, PhaseStarted
from tunefleet.core.task import Task, WeightedTask
from tunefleet.runs import watching


def lane(task_id: str, trials: int, best_s: float | None, failed: int = 0) -> LaneUpdated:
    task = Task(task_id, "conv2d", "conv2d", "", 1.0, "")
    return LaneUpdated(WeightedTask(task, 1), trials, failed, best_s, None)


def test_a_run_is_one_line_with_its_phase_trials_and_tasks() -> None:
    text = watching.RunText("net")
    assert str(text) == "net: starting"
    events = (PhaseStarted("tune"), JobOpened("j", False, Budget(trials=24), 0.0),
              lane("a", 9, 1e-3, failed=2), lane("b", 4, None))  # fmt: skip
    for event in events:
        text.absorb(event)
    assert str(text) == "net: tune, 13 of 24 trials, 1 of 2 tasks measured, 2 trials failed"


def test_the_last_warnings_stay_below_and_notes_do_not() -> None:
    text = watching.RunText("net")
    for event in (Note("fine"), *(Note(f"w{i}", warning=True) for i in range(6))):
        text.absorb(event)
    assert str(text).splitlines()[1:] == [f"warning: w{i}" for i in (2, 3, 4, 5)]


def test_a_run_ends_as_done_or_with_its_error() -> None:
    done, failed = watching.RunText("net"), watching.RunText("net")
    done.absorb(JobEnded())
    failed.absorb(JobEnded("no such file"))
    assert (str(done), str(failed)) == ("net: done", "net: failed: no such file")


class Kernel:
    """A notebook's display, which keeps what it is given."""

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.made = 0

    def display(self, data, *, raw, display_id):
        assert (raw, display_id) == (True, True)
        self.made += 1
        self.shown.append(data["text/plain"])
        return types.SimpleNamespace(update=self.update)

    def update(self, data, *, raw) -> None:
        self.shown.append(data["text/plain"])


@pytest.fixture
def kernel(monkeypatch) -> Kernel:
    made = Kernel()
    shell = types.SimpleNamespace(kernel=made)
    monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
    module = types.ModuleType("IPython")
    module.get_ipython = lambda: shell  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", module)
    display = types.ModuleType("IPython.display")
    display.display = made.display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return made


def test_a_script_shows_nothing(capsys) -> None:
    observer = watching.default_observer("net")
    observer(PhaseStarted("tune"))
    assert observer is watching.ignore
    assert capsys.readouterr() == ("", "")


def test_a_notebook_writes_over_one_output(kernel: Kernel) -> None:
    observer = watching.default_observer("net")
    observer(PhaseStarted("import"))
    observer(PhaseStarted("tune"))
    assert (kernel.made, kernel.shown) == (1, ["net: import", "net: tune"])


def test_rounds_update_it_a_few_times_a_second(kernel: Kernel) -> None:
    observer = watching.default_observer("net")
    observer(PhaseStarted("tune"))
    for trials in range(100):
        observer(lane("a", trials, None))
    assert len(kernel.shown) < 10


def test_other_threads_do_not_draw(kernel: Kernel) -> None:
    observer = watching.default_observer("net")
    other = threading.Thread(target=observer, args=(Note("slow", warning=True),))
    other.start()
    other.join()
    assert kernel.shown == []
    observer(PhaseStarted("tune"))
    assert kernel.shown == ["net: tune\nwarning: slow"]


@pytest.mark.slow
def test_a_kernel_without_widgets_shows_one_output_that_changes() -> None:
    """In a real kernel, where nbclient and ipykernel are installed; they are none of our extras."""
    nbclient = pytest.importorskip("nbclient", reason="nbclient and ipykernel are not installed")
    pytest.importorskip("ipykernel", reason="nbclient and ipykernel are not installed")
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")

    code = """
        import sys
        from tunefleet.core.events import Note, PhaseStarted
        from tunefleet.runs.watching import default_observer

        sys.modules["ipywidgets"] = None
        observer = default_observer("net")
        for event in (PhaseStarted("import"), Note("slow", True), PhaseStarted("tune")):
            observer(event)
    """
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [nbformat.v4.new_code_cell(textwrap.dedent(code))]
    nbclient.NotebookClient(notebook, timeout=60, kernel_name="python3").execute()
    [output] = notebook.cells[0].outputs
    assert output["data"] == {"text/plain": "net: tune\nwarning: slow"}


def test_ipython_in_a_terminal_is_no_notebook(kernel: Kernel, monkeypatch) -> None:
    terminal = types.SimpleNamespace()
    monkeypatch.setattr(sys.modules["IPython"], "get_ipython", lambda: terminal)
    assert not watching.in_notebook()
