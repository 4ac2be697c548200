"""Cost models (`tunefleet-costmodel/1`) as tables for a terminal."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from tunefleet.core.identity import UNNAMED
from tunefleet.report.grid import Grid
from tunefleet.report.text import pairs
from tunefleet.report.units import UNKNOWN, format_count, format_seconds, format_some

#: What is shown of each device, and its heading.
_HEADINGS = {"top1": "top-1", "top5": "top-5", "pca": "PCA", "rmse": "RMSE", "r2": "R2"}
#: Those with the range over the members; the errors have no room for it.
_WITH_RANGE = ("top1", "top5", "pca")
_ID = 12
#: Files and targets that a card lists by name.
_LISTED = 6


def metrics_tables(
    models: Mapping[str, Sequence[Mapping[str, Any]]], seconds: Mapping[str, float] | None = None
) -> list[Group]:
    """A table for each device, below its name: the metrics of each model as
    `DeviceMetrics.to_json` has them, then those of a random ranking. `seconds` are those of
    training one member."""
    names = dict.fromkeys(device["device"] for devices in models.values() for device in devices)
    return [
        _device_table(
            {
                model: device
                for model, devices in models.items()
                for device in devices
                if device["device"] == name
            },
            seconds,
        )
        for name in names
    ]


def _device_table(
    models: Mapping[str, Mapping[str, Any]], seconds: Mapping[str, float] | None
) -> Group:
    device = next(iter(models.values()))
    # A title of the table would be broken to its width.
    title = (
        f"{device['device']}: {format_some(device['records'], 'test record')} of "
        f"{format_some(device['tasks'], 'task')}"
    )
    table = Grid()
    table.add_column("model", no_wrap=True)
    for heading in _HEADINGS.values():
        table.add_column(heading, no_wrap=True)
    if seconds is not None:
        table.add_column("training", justify="right", no_wrap=True)
    for model, figures in models.items():
        cells = [_cell(figures["members"][metric], metric) for metric in _HEADINGS]
        if seconds is not None:
            cells.append(format_seconds(seconds.get(model)))
        table.add_row(Text(model), *cells)
    chance = [
        f"{device['random'][metric]:.3f}" if metric in device["random"] else UNKNOWN
        for metric in _HEADINGS
    ]
    table.add_row(Text("by chance", style="dim"), *chance)
    return Group(Text(title, style="bold"), table)


def _cell(values: Sequence[float], metric: str) -> str:
    """Median, and range where it is shown and there is one."""
    ordered = sorted(values)
    middle = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
    if metric not in _WITH_RANGE or len(ordered) == 1:
        return f"{middle:.3f}"
    return f"{middle:.3f} ({ordered[0]:.3f} to {ordered[-1]:.3f})"


def models_table(cards: Sequence[Mapping[str, Any]]) -> Table:
    """A row per version, in the order given: cards as `tunefleet costmodel list` has them as JSON.
    Records are those that trained it."""
    table = Grid()
    for heading in ("id", "name", "from", "kind", "features"):
        table.add_column(heading, no_wrap=True)
    table.add_column("learned", overflow="fold")
    table.add_column("tested on", overflow="fold")
    for heading in ("records", "members", "PCA"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("created", no_wrap=True)
    for card in cards:
        table.add_row(
            card["id"][:_ID],
            Text(card["name"]),
            Text(_origin(card)),
            Text(card["kind"]),
            Text(card["features"]),
            Text(", ".join(dict.fromkeys(each["precision"] for each in _learned(card))) or UNKNOWN),
            Text(", ".join(device["device"] for device in card["metrics"])),
            format_count(card["split"]["train"]),
            str(len(card["seeds"])),
            _pca(card),
            when(card["created"]),
        )
    return table


def _origin(card: Mapping[str, Any]) -> str:
    """Where a version is from, and that its name means another one."""
    origin = "tunefleet" if card["shipped"] else "home"
    return origin if card["by_name"] else f"{origin}, by id"


def _pca(card: Mapping[str, Any]) -> str:
    """Of its devices together, by their records."""
    weights = [device["records"] for device in card["metrics"]]
    means = [sum(d["members"]["pca"]) / len(d["members"]["pca"]) for d in card["metrics"]]
    total = sum(weights)
    if not total:
        return UNKNOWN
    return f"{sum(w * pca for w, pca in zip(weights, means, strict=True)) / total:.3f}"


def _learned(card: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """What kinds of programs trained it; nothing on a card of before cards told."""
    learned: Sequence[Mapping[str, Any]] = card.get("learned", ())
    return learned


def _kinds(card: Mapping[str, Any]) -> str:
    kinds = [
        f"{each['precision']} on {each['architecture'] or 'devices that are not named'} "
        f"({format_count(each['records'])})"
        for each in _learned(card)
    ]
    return ", ".join(kinds) or "not told: it steers searches of every kind"


def _parent(card: Mapping[str, Any]) -> str:
    if card["parent"] is None:
        return "none"
    return f"{card['parent']}{', whose weights it goes on from' if card.get('inherited') else ''}"


def card_pairs(card: Mapping[str, Any]) -> Table:
    """All of a card but its metrics."""
    split = card["split"]
    return pairs(
        [
            ("id", Text(card["id"], style="bold")),
            ("name", card["name"]),
            ("kind", card["kind"]),
            ("features", card["features"]),
            ("created", when(card["created"])),
            ("parent", _parent(card)),
            ("members", f"{len(card['seeds'])}, of the seeds {_list(card['seeds'])}"),
            ("settings", _settings(card["settings"])),
            ("split", _split(split)),
            (
                "records",
                f"{format_count(split['train'])} to train, {format_count(split['validation'])} to "
                f"validate, {format_count(split['test'])} to test",
            ),
            ("learned", _kinds(card)),
            ("files", _files(card["records"])),
            ("formats", _distinct(card["records"], "formats")),
            ("devices", _distinct(card["records"], "devices")),
            ("targets", _distinct(card["records"], "targets")),
            ("toolchain", _settings(card["toolchain"])),
            ("limits", card["limits"]),
        ]
    )


def when(seconds: float) -> str:
    """A time, seconds since the epoch, in UTC."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))


def _split(split: Mapping[str, Any]) -> str:
    held = f", {split['hold_out']} tests" if split["hold_out"] else ""
    most = f", at most {format_count(split['max_records'])} train" if split["max_records"] else ""
    return f"{split['name']}{held}{most}, seed {split['seed']}"


def _files(records: Sequence[Mapping[str, Any]]) -> str:
    return _list(
        [f"{r['file']} ({format_count(r['used'])}, sha256 {r['sha256'][:_ID]})" for r in records]
    )


def _distinct(records: Sequence[Mapping[str, Any]], name: str) -> str:
    return _list(dict.fromkeys(value or UNNAMED for record in records for value in record[name]))


def _list(values: Any) -> str:
    shown = [str(value) for value in values]
    rest = f" and {len(shown) - _LISTED} more" if len(shown) > _LISTED else ""
    return (", ".join(shown[:_LISTED]) or "none") + rest


def _settings(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in sorted(values.items())) or "none"
