from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from tests.costmodel.cards import a_card
from tunefleet.costmodel.card import Learned
from tunefleet.report.costmodel_text import card_pairs, metrics_tables, models_table
from tunefleet.report.units import UNKNOWN


def printed(value: Any) -> str:
    file = io.StringIO()
    Console(file=file, width=120, highlight=False).print(value)
    return file.getvalue()


def device(**given: Any) -> dict[str, Any]:
    return {**a_card().metrics[0].to_json(), **given}


def test_metrics_stand_beside_chance() -> None:
    (table,) = metrics_tables({"xgb": [device()]})
    lines = [line.split() for line in printed(table).splitlines()]
    assert lines[0] == ["v100:", "1", "test", "record", "of", "1", "task"]
    assert lines[3] == ["xgb", *3 * ["0.500", "(0.250", "to", "0.750)"], "0.500", "0.500"]
    assert lines[4] == ["by", "chance", "0.500", "0.600", "0.500", UNKNOWN, UNKNOWN]


def test_a_single_member_has_no_range() -> None:
    one = device(members={name: [0.5] for name in device()["members"]})
    assert "to 0" not in printed(metrics_tables({"xgb": [one]})[0])


def test_models_stand_below_each_other_for_every_device() -> None:
    both = [device(), device(device="a72")]
    tables = metrics_tables({"xgb": both, "mlp": both}, {"xgb": 1.0, "mlp": 90.0})
    assert [printed(table).split(":")[0] for table in tables] == ["v100", "a72"]
    for table in tables:
        text = printed(table)
        assert text.index("xgb") < text.index("mlp") < text.index("by chance")
        assert "1 min 30 s" in text


def listed(card: Any, *, shipped: bool = False, by_name: bool = True) -> Any:
    return {**card, "shipped": shipped, "by_name": by_name}


def test_a_list_has_a_line_for_each_version() -> None:
    card = a_card().with_id().to_json()
    text = printed(models_table([listed(card), listed(card)]))
    assert text.count(card["id"][:12]) == 2
    assert "2023-11-14 22:13 UTC" in text


def test_a_list_says_where_a_version_is_from_and_what_its_name_means() -> None:
    card = a_card().with_id().to_json()
    assert " home " in printed(models_table([listed(card)]))
    assert "tunefleet, by id" in printed(
        models_table([listed(card, shipped=True, by_name=False), listed(card)])
    )


def test_a_card_is_shown_whole() -> None:
    text = printed(card_pairs(a_card(parent="ab" * 16, limits="[red]none[/red]").to_json()))
    for part in ("ab" * 16, "a.parquet (10, sha256 abababababab)", "rounds 3", "python 3.11.7",
                 "8 to train, 1 to validate, 1 to test", "[red]none[/red]"):  # fmt: skip
        assert part in text


def test_what_a_model_has_learned_is_shown() -> None:
    kinds = (Learned("x86", "float32", 9000), Learned("", "int8", 1))
    card = a_card(learned=kinds).with_id().to_json()
    text = printed(card_pairs(card))
    assert "float32 on x86 (9,000), int8 on devices that are not named (1)" in text
    assert "float32, int8" in printed(models_table([listed(card)]))
    before = a_card().with_id().to_json()
    assert "not told: it steers searches of every kind" in printed(card_pairs(before))


def test_many_files_are_summed_up() -> None:
    card = a_card().to_json()
    card["records"] *= 9
    assert "and 3 more" in printed(card_pairs(card))
