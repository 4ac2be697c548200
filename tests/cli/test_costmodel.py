from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.dataset.records import Record, table
from tests.learning.made import made_table
from tunefleet.core.home import Home, default_home
from tunefleet.costmodel import registry
from tunefleet.dataset import parquet
from tunefleet.dataset.rows import Rows
from tunefleet.store import MemoryStore

from .conftest import Invoke, Outcome

pytestmark = pytest.mark.slow


@pytest.fixture
def records(tmp_path: Path) -> str:
    path = tmp_path / "records.parquet"
    parquet.write(made_table(tasks=4, devices=("v100", "a72")).to_batches(), path)
    return str(path)


@pytest.fixture(autouse=True)
def _none_shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "SHIPPED", tmp_path / "shipped")


Ship = Callable[[str], None]


@pytest.fixture
def ship() -> Ship:
    """Makes a version of this home one that comes with the package."""

    def move(version: str) -> None:
        registry.SHIPPED.mkdir()
        shutil.move(Home(default_home()).cost_models / version, registry.SHIPPED)

    return move


def costmodel(invoke: Invoke, *arguments: str) -> Outcome:
    return invoke("costmodel", *arguments)


def trained(invoke: Invoke, records: str, *arguments: str, name: str = "mine") -> dict[str, Any]:
    ended = costmodel(invoke, "train", records, "--model", "xgb", "--name", name, "--quiet",
                      "--json", "-", *arguments)  # fmt: skip
    assert (ended.code, ended.err) == (0, "")
    return json.loads(ended.out)


def test_a_model_is_trained_tested_and_kept(invoke: Invoke, records: str) -> None:
    ended = costmodel(invoke, "train", records, "--model", "xgb", "--name", "mine")
    assert ended.code == 0
    for text in ("v100: 12 test records of 4 tasks", "xgb", "by chance", "saved as mine"):
        assert text in ended.out
    for text in ("read 240 records of 1 file", "trained xgb, seed 0 (1 of 1)"):
        assert text in ended.err


def test_a_name_that_hides_a_shipped_model_is_told(
    invoke: Invoke, records: str, ship: Ship
) -> None:
    shipped = trained(invoke, records)["card"]["id"]
    ship(shipped)
    ended = costmodel(invoke, "train", records, "--model", "random", "--name", "mine", "--quiet",
                      "--json", "-")  # fmt: skip
    figures = json.loads(ended.out)
    assert ended.err == (
        "note: mine now means this version, also for searches; the shipped version is "
        f"{shipped[:12]}: use that id, or remove {figures['path']}\n"
    )
    found = json.loads(costmodel(invoke, "show", "mine", "--json", "-").out)["id"]
    assert figures["card"]["id"] == found
    assert costmodel(invoke, "show", shipped[:12]).code == 0


def test_the_list_says_what_a_name_means(invoke: Invoke, records: str, ship: Ship) -> None:
    shipped = trained(invoke, records)["card"]["id"]
    ship(shipped)
    costmodel(invoke, "train", records, "--model", "random", "--name", "mine", "--quiet")
    listed = json.loads(costmodel(invoke, "list", "--json", "-").out)["models"]
    assert {(model["shipped"], model["by_name"]) for model in listed} == {
        (True, False), (False, True)
    }  # fmt: skip
    assert "tunefleet, by id" in costmodel(invoke, "list").out


def test_quiet_shows_the_result_only(invoke: Invoke, records: str) -> None:
    ended = costmodel(invoke, "train", records, "--model", "random", "--name", "r", "--quiet")
    assert (ended.code, ended.err) == (0, "")
    assert "random" in ended.out


@pytest.mark.parametrize(
    "arguments",
    [
        ("within_task",),
        ("within_task_in_order",),
        ("by_task",),
        ("by_target", "--hold-out", "a72"),
        ("by_network", "--hold-out", "net1"),
    ],
)
def test_every_split_trains(invoke: Invoke, records: str, arguments: tuple[str, ...]) -> None:
    card = trained(invoke, records, "--split", *arguments, "--max-records", "40")["card"]
    assert (card["split"]["name"], card["split"]["train"]) == (arguments[0], 40)
    assert card["split"]["hold_out"] == (arguments[2] if arguments[1:] else None)


def test_a_model_is_tested_again_on_networks_that_a_file_listed(
    invoke: Invoke, records: str, tmp_path: Path
) -> None:
    workload = Rows.of(parquet.read_table(Path(records))).workload.names[0]
    listed = tmp_path / "networks.json"
    listed.write_text(json.dumps({"mine": [workload], "other": ["w"]}))
    asked = ("--split", "by_network", "--hold-out", "mine", "--networks", str(listed))
    card = trained(invoke, records, *asked)["card"]
    assert {"mine": [workload]} == card["split"]["networks"]
    listed.unlink()
    again = json.loads(costmodel(invoke, "evaluate", "mine", records, "--json", "-").out)
    assert card["split"]["test"] == again["records"]


def test_the_card_is_shown(invoke: Invoke, records: str) -> None:
    card = trained(invoke, records, "--limits", "for tests")["card"]
    ended = costmodel(invoke, "show", "mine")
    for text in (card["id"], "records.parquet", "tilings/1", "for tests", "a72: 12 test records"):
        assert text in ended.out
    assert json.loads(costmodel(invoke, "show", card["id"][:8], "--json", "-").out) == card


def test_models_are_listed_newest_first(invoke: Invoke, records: str) -> None:
    assert costmodel(invoke, "list").out.startswith("no cost models yet")
    first, second = (trained(invoke, records, name=name)["card"] for name in "ab")
    ended = costmodel(invoke, "list")
    assert ended.out.index(second["id"][:12]) < ended.out.index(first["id"][:12])
    listed = json.loads(costmodel(invoke, "list", "--json", "-").out)
    called = {"shipped": False, "by_name": True}
    assert listed == {"models": [second | called, first | called]}


def test_a_model_follows_its_parent(invoke: Invoke, records: str) -> None:
    first = trained(invoke, records)["card"]
    assert (
        trained(invoke, records, "--parent", "mine", name="next")["card"]["parent"] == first["id"]
    )


@pytest.mark.frameworks
def test_attention_goes_on_from_its_parent_on_records_that_it_does_not_know(
    invoke: Invoke, records: str, tmp_path: Path
) -> None:
    others = str(tmp_path / "others.parquet")
    parquet.write(made_table(tasks=3, devices=("k80",)).to_batches(), Path(others))
    small = ("--model", "attention", "--seeds", "1", "--epochs", "1")
    first = trained(invoke, records, *small, "--hidden", "8")["card"]
    second = trained(invoke, others, *small, "--parent", "mine", name="next")["card"]
    assert second["parent"] == first["id"]
    assert second["inherited"] == [used["sha256"] for used in first["records"]]
    assert (second["settings"]["hidden"], second["settings"]["epochs"]) == (8, 1)
    assert "goes on from" in costmodel(invoke, "show", "next").out
    for arguments, reason in (
        (("train", records, *small, "--name", "x", "--parent", "mine"), "was trained on"),
        (("train", others, *small, "--name", "x", "--parent", "next"), "was trained on"),
        (("evaluate", "next", records), "the parent of cost model next was trained on some"),
    ):
        ended = costmodel(invoke, *arguments, "--quiet")
        assert (ended.code, ended.err.count("\n")) == (2, 1)
        assert reason in ended.err


def test_evaluation_of_the_records_of_the_training_gives_its_metrics(
    invoke: Invoke, records: str
) -> None:
    card = trained(invoke, records)["card"]
    ended = costmodel(invoke, "evaluate", "mine", records, "--quiet", "--json", "-")
    found = json.loads(ended.out)
    assert [d["members"] for d in found["metrics"]] == [d["members"] for d in card["metrics"]]
    assert "the test part of that training" in found["note"]


def test_an_exported_model_is_evaluated_by_its_path(
    invoke: Invoke, records: str, tmp_path: Path
) -> None:
    trained(invoke, records)
    copy, others = str(tmp_path / "copy.zip"), tmp_path / "others.parquet"
    parquet.write(made_table(tasks=2, devices=("k80",)).to_batches(), others)
    assert costmodel(invoke, "export", "mine", "-o", copy).code == 0
    ended = costmodel(invoke, "evaluate", copy, str(others), "--home", str(tmp_path / "empty"))
    assert ended.code == 0
    assert "k80: 60 test records of 2 tasks" in ended.out
    assert "60 records; none of these files was trained on" in ended.out
    parquet.write(made_table(tasks=1, programs=1, failed=0).to_batches(), others)
    of_one = costmodel(invoke, "evaluate", copy, str(others), "--quiet").out
    assert "\n1 record; none of these files" in of_one


def test_kinds_are_compared_on_one_split(invoke: Invoke, records: str) -> None:
    ended = costmodel(invoke, "compare", records, "--models", "xgb,random", "--seeds", "2",
                      "--json", "-", "--quiet")  # fmt: skip
    found = json.loads(ended.out)
    assert [(m["model"], m["seeds"]) for m in found["models"]] == [("xgb", [0]), ("random", [0, 1])]
    assert costmodel(invoke, "list").out.startswith("no cost models yet")
    shown = costmodel(invoke, "compare", records, "--models", "xgb,random").out
    for text in ("training", "xgb", "random", "by chance", "within_task: "):
        assert text in shown


@pytest.mark.frameworks
def test_each_kind_that_is_compared_takes_the_options_it_knows(
    invoke: Invoke, records: str
) -> None:
    ended = costmodel(invoke, "compare", records, "--models", "xgb,mlp,random", "--seeds", "1",
                      "--epochs", "1", "--hidden", "8", "--json", "-", "--quiet")  # fmt: skip
    assert ended.code == 0
    assert [m["model"] for m in json.loads(ended.out)["models"]] == ["xgb", "mlp", "random"]
    none = costmodel(invoke, "compare", records, "--models", "xgb,random", "--epochs", "1")
    assert none.code == 2
    assert "xgb, random is not trained in epochs" in none.err


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (("--model", "svm"), 2, "unknown kind of cost model 'svm'; choose one of"),
        (("--features", "x/1"), 2, "unknown feature schema 'x/1'"),
        (("--features", "per-store/1"), 2, "there are records of auto_scheduler"),
        (("--split", "by_luck"), 2, "'by_luck' is not a split"),
        (("--split", "by_target"), 2, "needs a test device; give it with --hold-out"),
        (("--split", "by_target", "--hold-out", "t4"), 2, "hold out one of 'a72', 'v100'"),
        (("--max-records", "2"), 2, "part of the split is empty"),
        (("--test", "0.6", "--validation", "0.6"), 2, "leave no split"),
        (("--epochs", "3"), 2, "is not trained in epochs"),
        (("--hidden", "8"), 2, "xgb has no width; leave --hidden out"),
        (("--device", "cuda"), 2, "trains on the CPU only"),
        (("--device", "tpu"), 2, "unknown device 'tpu'; choose cpu or cuda"),
        (("--seeds", "0"), 2, "0 is not a positive number"),
        (("--name", "a/b"), 2, "'a/b' is not a valid name"),
        (("--parent", "nobody"), 2, "no cost model 'nobody'"),
    ],
)
def test_bad_input_is_explained_in_one_line(
    invoke: Invoke, records: str, arguments: tuple[str, ...], code: int, reason: str
) -> None:
    ended = costmodel(invoke, "train", records, "--model", "xgb", "--name", "mine", "--quiet",
                      *arguments)  # fmt: skip
    assert (ended.code, ended.out, ended.err.count("\n")) == (code, "", 1)
    assert reason in ended.err
    assert costmodel(invoke, "list").out.startswith("no cost models yet")


def test_records_in_which_everything_failed_are_explained(invoke: Invoke, tmp_path: Path) -> None:
    path = tmp_path / "failed.parquet"
    failed = [Record(steps=(f'["CI",{i}]',), error_no=4) for i in range(40)]
    parquet.write(table(failed).to_batches(), path)
    ended = costmodel(invoke, "train", str(path), "--model", "xgb", "--name", "x", "--quiet")
    assert (ended.code, ended.out) == (2, "")
    assert "no record of the train part has a valid latency" in ended.err


def test_a_damaged_card_is_explained_and_listed(invoke: Invoke, records: str) -> None:
    done = trained(invoke, records)
    (Path(done["path"]) / "card.json").write_text("{")
    shown = costmodel(invoke, "show", done["card"]["id"])
    assert (shown.code, shown.out, shown.err.count("\n")) == (2, "", 1)
    assert "no usable card.json" in shown.err
    assert "skipped: cost model" in costmodel(invoke, "list").err


def test_lines_that_are_no_records_are_told(invoke: Invoke, records: str, tmp_path: Path) -> None:
    trained(invoke, records)
    log = tmp_path / "a.json"
    log.write_text(
        '{"i": [["[\\"f\\", [64]]", "cuda", [-1, 16, 64, 49152, 2147483647, 1024, 8, 32], "", 0, '
        '[]], [[], [["CI", 1]]]], "r": [[0.001], 0, 2.5, 1637927264], "v": "v0.6"}\nno record\n'
    )
    ended = costmodel(invoke, "evaluate", "mine", str(log), "--measured-on", "t4", "--quiet")
    assert ended.code == 0
    assert "bad line" in ended.err
    assert "t4: 1 test record of 1 task" in ended.out


def test_searches_use_the_version_that_is_chosen(invoke: Invoke, records: str, ship: Ship) -> None:
    shipped = trained(invoke, records, name="x86")["card"]["id"]
    ship(shipped)
    assert f"searches use x86, {shipped[:12]}\n" == costmodel(invoke, "history").out
    own = trained(invoke, records, "--seeds", "1")["card"]["id"]
    assert costmodel(invoke, "use", "mine").out == f"searches use mine, {own[:12]}\n"
    shown = costmodel(invoke, "history").out.splitlines()
    assert shown[0].endswith(f"version {own[:12]} was chosen")
    assert shown[1:] == [f"searches use mine, {own[:12]}"]
    told = json.loads(costmodel(invoke, "history", "--json", "-").out)
    assert told["in_use"] == own
    assert [each["parent"] for each in told["learnings"]] == [shipped]
    assert costmodel(invoke, "use", shipped[:8]).code == 0
    assert f"searches use x86, {shipped[:12]}" in costmodel(invoke, "history").out
    # A version that is given the default's name takes its place.
    train = ("train", records, "--model", "xgb", "--seeds", "1", "--name", "x86")
    again = json.loads(costmodel(invoke, *train, "--quiet", "--json", "-").out)["card"]["id"]
    assert f"searches use x86, {again[:12]}" in costmodel(invoke, "history").out


@pytest.mark.frameworks
class TestLearn:
    @pytest.fixture
    def known(self, invoke: Invoke, records: str) -> dict[str, Any]:
        small = ("--model", "unified", "--seeds", "1", "--epochs", "2", "--hidden", "8")
        return trained(invoke, records, *small, "--replay", "50")["card"]

    @pytest.fixture
    def others(self, tmp_path: Path) -> str:
        path = tmp_path / "others.parquet"
        parquet.write(made_table(tasks=3, devices=("k80",)).to_batches(), path)
        return str(path)

    def test_a_device_is_added_and_the_lineage_kept(
        self, invoke: Invoke, known: dict[str, Any], others: str
    ) -> None:
        ended = costmodel(invoke, "learn", "--model", "mine", "--add", others, "--epochs", "1",
                          "--most-loss", "1", "--quiet", "--json", "-")  # fmt: skip
        assert (ended.code, ended.err) == (0, "")
        figures = json.loads(ended.out)
        card = figures["card"]
        assert (card["name"], card["parent"]) == ("mine", known["id"])
        assert card["inherited"] == [used["sha256"] for used in known["records"]]
        assert [recall["number"] for recall in figures["recall"]] == [1]
        assert (
            card["id"]
            == json.loads(costmodel(invoke, "list", "--json", "-").out)["models"][0]["id"]
        )

    def test_what_it_forgot_is_shown(
        self, invoke: Invoke, known: dict[str, Any], others: str
    ) -> None:
        ended = costmodel(invoke, "learn", "--model", "mine", "--add", others, "--epochs", "1",
                          "--most-loss", "1", "--name", "next")  # fmt: skip
        assert ended.code == 0
        for text in ("k80: ", "learned before (1), ", "saved as next"):
            assert text in ended.out

    def test_what_a_shipped_model_learns_has_a_name_of_its_own(
        self, invoke: Invoke, known: dict[str, Any], others: str, ship: Ship
    ) -> None:
        ship(known["id"])
        learn = ("learn", "--add", others, "--epochs", "1", "--most-loss", "1")
        ended = costmodel(invoke, *learn, "--model", "mine")
        assert (ended.code, ended.out.count("saved as my-mine, ")) == (0, 1)
        assert (
            "note: to use it in a search: tunefleet tune NETWORK --pretrained my-mine" in ended.err
        )
        assert known["id"] == json.loads(costmodel(invoke, "show", "mine", "--json", "-").out)["id"]

    def test_a_version_that_forgets_too_much_is_not_kept(
        self, invoke: Invoke, known: dict[str, Any], others: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from tunefleet.learning import growing

        lost = growing.Recall(1, 9, {"top1": 0.9, "top5": 0.9}, {"top1": 0.5, "top5": 0.9})
        monkeypatch.setattr(growing, "recalled", lambda before, after: (lost,))
        ended = costmodel(invoke, "learn", "--model", "mine", "--add", others, "--epochs", "1",
                          "--quiet")  # fmt: skip
        assert (ended.code, ended.err.count("\n")) == (2, 1)
        assert "would fall from 0.900 to 0.500, by more than 0.03" in ended.err
        listed = json.loads(costmodel(invoke, "list", "--json", "-").out)["models"]
        assert [known["id"]] == [each["id"] for each in listed]

    @pytest.mark.parametrize(
        ("arguments", "reason"),
        [
            ((), "no records given"),
            (("--add", "missing.parquet"), "missing.parquet does not exist"),
            (("--from-home",), "has measured anything"),
            (("--add", "RECORDS"), "was trained on"),
        ],
    )
    def test_what_cannot_be_learned_is_told_in_a_line(
        self, invoke: Invoke, known: dict[str, Any], records: str,
        arguments: tuple[str, ...], reason: str,
    ) -> None:  # fmt: skip
        given = [records if argument == "RECORDS" else argument for argument in arguments]
        ended = costmodel(invoke, "learn", "--model", "mine", *given, "--quiet")
        assert (ended.code, ended.err.strip().count("\n")) == (2, 0)
        assert reason in ended.err

    def test_a_job_of_a_home_is_learned_once(
        self, invoke: Invoke, known: dict[str, Any], others: str, tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        jobs = {"first": others}

        def write(folder: Path, store: Any) -> tuple[list[Path], int]:
            files = [
                Path(shutil.copy(path, folder / f"{job}.parquet")) for job, path in jobs.items()
            ]
            return files, 0

        monkeypatch.setattr("tunefleet.runs.collected.write_ended", write)
        monkeypatch.setattr("tunefleet.store.open_store", lambda home: MemoryStore())
        learn = ("learn", "--from-home", "--epochs", "1", "--most-loss", "1", "--json", "-")
        again = ("--model", "next", "--name", "next")
        ended = costmodel(invoke, *learn, "--model", "mine", "--name", "next")
        (first,) = json.loads(ended.out)["card"]["records"]
        assert first["file"] == "first.parquet"
        ended = costmodel(invoke, *learn, *again)
        assert ended.code == 2
        assert "next was already trained on all searches of" in ended.err
        parquet.write(made_table(tasks=2, devices=("t4",)).to_batches(), tmp_path / "t4.parquet")
        jobs["second"] = str(tmp_path / "t4.parquet")
        ended = costmodel(invoke, *learn, *again)
        (second,) = json.loads(ended.out)["card"]["records"]
        assert second["file"] == "second.parquet"


def test_only_a_model_that_can_be_guarded_learns_more(invoke: Invoke, records: str) -> None:
    trained(invoke, records)
    ended = costmodel(invoke, "learn", "--model", "mine", "--add", records, "--quiet")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "keeps no programs to test what it forgets" in ended.err
