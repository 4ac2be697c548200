"""Broken, hostile and odd files of tunefleet's own: homes, stores, records, models."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import hostile_valid as valid
from hostile_case import LOG_LINE, ODD, Case, Place
from hostile_damage import Damage, cut, flipped, instead, linked, spoilt
from hostile_networks import bomb, rezipped

_HOMES, _RECORDS, _MODELS = "Homes and stores", "Records", "Cost models"


def cases() -> list[Case]:
    return [*_homes(), *_stores(), *_records(),
            *_devices(), *_models()]  # fmt: skip


def _case(
    category: str,
    name: str,
    make: Callable[[Place], Sequence[str | bytes]],
    codes: tuple[int, ...] = (2,),
    **options: Any,
) -> Case:
    return Case(category, name, make, codes, **options)


def _homes() -> list[Case]:
    def text(place: Place) -> Sequence[str]:
        return ["jobs", "--home", place.write("home", "x")]

    def loop(place: Place) -> Sequence[str]:
        os.symlink(place.home, place.home)
        return ["jobs"]

    def at(path: str, *command: str) -> Callable[[Place], Sequence[str]]:
        return lambda place: [*(command or ("jobs",)), "--home", path]

    tune = ("tune", "zoo:tiny_cnn", "--trials", "2")
    below = "/proc/1/home"
    return [
        _case(_HOMES, "home is a file", text, quick=True),
        _case(_HOMES, "home is a link to itself", loop, ODD),
        _case(_HOMES, "a home below /proc", at(below), ODD),
        _case(_HOMES, "tuning with a home below /proc", at(below, *tune), (2, 3)),
        _case(_HOMES, "tuning with a home below /sys", at("/sys/home", *tune), (2, 3)),
        _case(_HOMES, "tuning with a home below /dev/null", at("/dev/null/home", *tune), (2, 3)),
        _case(_HOMES, "a home whose name is too long", at("h" * 300), (2, 3)),
        _case(_HOMES, "a home named by nothing", at(""), ODD),
        _case(_HOMES, "a home with a line break in its name", at("a\nb"), ODD),
        _case(_HOMES, "a home that no jobs are in", at("nowhere", "pause", "123456")),
        _case(_HOMES, "a run that nobody made", at("nowhere", "timeline", "123456")),
        _case(_HOMES, "unknown run id", at("nowhere", "evaluate", "0" * 32)),
    ]


def _store(
    name: str,
    damage: Damage,
    codes: tuple[int, ...] = (3,),
    command: Sequence[str] = ("jobs",),
    **options: Any,
) -> Case:
    def make(place: Place) -> Sequence[str]:
        damage(place.copied_home() / "store.sqlite")
        return command

    return _case(_HOMES, name, make, codes, **options)


def _sql(*statements: str) -> Damage:
    def damage(store: Path) -> None:
        connection = sqlite3.connect(store)
        for statement in statements:
            connection.execute(statement)
        connection.commit()
        connection.close()

    return damage


def _replaced(content: bytes) -> Damage:
    return lambda store: store.write_bytes(content)


def _bound(path: Path) -> None:
    """A socket, by an address that is short where the folder's is not."""
    listener = socket.socket(socket.AF_UNIX)
    descriptor = os.open(path.parent, os.O_RDONLY)
    listener.bind(f"/proc/self/fd/{descriptor}/{path.name}")
    listener.close()
    os.close(descriptor)


def _stores() -> list[Case]:
    def beside(suffix: str, content: bytes) -> Damage:
        return lambda store: store.with_name(store.name + suffix).write_bytes(content)

    def only(place: Place) -> Sequence[str]:
        place.write("home/store.sqlite", b"not a database, " * 100)
        return ["jobs"]

    def none(place: Place) -> Sequence[str]:
        place.copied_home().joinpath("store.sqlite").unlink()
        return ["jobs"]

    later = "UPDATE alembic_version SET version_num = '9999_of_tomorrow'"
    lock = (
        'python3 -c \'import sqlite3, subprocess, sys; c = sqlite3.connect("home/store.sqlite"); '
        'c.execute("BEGIN EXCLUSIVE"); sys.exit(subprocess.call(sys.argv[1:]))\' "$@"'
    )
    tune = ("tune", "zoo:tiny_cnn", "--trials", "8", "--threads", "1", "--quiet")
    return [
        _case(_HOMES, "store is no store", only, (3,), quick=True),
        _case(_HOMES, "a store that was removed", none, ODD),
        _store("a store of text", _replaced(b"text\n" * 1000)),
        _store("an empty store", _replaced(b""), ODD),
        _store("a store cut in half", cut(0.5)),
        _store("a store cut to its first page", cut(0.01)),
        _store("a store with zeros in it", spoilt),
        _store("a store with one bit flipped", flipped, ODD),
        _store("a store of a newer version", _sql(later), (2, 3)),
        _store("a store of no version", _sql("DELETE FROM alembic_version"), ODD),
        _store("a store without trials", _sql("DROP TABLE trials"), ODD),
        _store("a store with broken summaries", _sql("UPDATE jobs SET summary = '{{{'")),
        _store("a store with jobs of another kind", _sql("UPDATE jobs SET spec = '[1, 2]'")),
        _store("a store with jobs in an unknown state", _sql("UPDATE jobs SET state = 'asleep'")),
        _store("a store with text for times", _sql("UPDATE jobs SET created_at = 'yesterday'")),
        _store("tuning on a store with broken traces",
               _sql("UPDATE trials SET outcome = 'x'", "UPDATE stages SET result = x'00ff'"),
               ODD, tune, most_s=90),
        _store("a write-ahead log of garbage", beside("-wal", b"\x13\x37" * 4096), ODD),
        _store("an index of the log of garbage", beside("-shm", b"\x13\x37" * 4096), ODD),
        _store("a store that is a folder", instead(Path.mkdir)),
        _store("a store that is a pipe", instead(os.mkfifo)),
        _store("a store that is a socket", instead(_bound)),
        _store("a store that is a link to itself", instead(linked)),
        _store("a store locked by another process", lambda store: None, (0, 4), most_s=60,
               shell=lock),
        _store("tuning on a store locked by another process", lambda store: None, (4,), tune,
               most_s=90, shell=lock),
    ]  # fmt: skip


def _log(name: str, content: bytes | str, *options: str, codes: tuple[int, ...] = (2,)) -> Case:
    """A log that is imported."""

    def make(place: Place) -> Sequence[str]:
        log = place.write("log.json", content)
        return ["dataset", "import", "--device", "v100", "-o", "out.parquet", *options, log]

    return _case(_RECORDS, name, make, codes)


def _parquet(
    name: str,
    make_file: Callable[[Place], bytes],
    *command: str,
    codes: tuple[int, ...] = (2,),
) -> Case:
    def make(place: Place) -> Sequence[str]:
        file = place.write("records.parquet", make_file(place))
        given = command or ("stats", "FILE")
        return ["dataset", *(file if word == "FILE" else word for word in given)]

    return _case(_RECORDS, name, make, codes)


def _good(place: Place) -> bytes:
    return place.world.records.read_bytes()


def _table(change: Callable[[Any], Any]) -> Callable[[Place], bytes]:
    """Valid Parquet whose table was changed, written by plain pyarrow."""

    def build(place: Place) -> bytes:
        import pyarrow.parquet as pq

        path = place.folder / "changed.parquet"
        pq.write_table(change(pq.read_table(place.world.records)), path)
        return path.read_bytes()

    return build


def _bomb(place: Place) -> bytes:
    """A small file whose one row group has 8 million rows, all alike."""
    import numpy as np
    import pyarrow.parquet as pq

    path = place.folder / "bomb.parquet"
    row = pq.read_table(place.world.records).slice(0, 1).combine_chunks()
    (batch,) = row.take(np.zeros(1 << 16, "int64")).combine_chunks().to_batches()
    with pq.ParquetWriter(path, row.schema, compression="zstd") as writer:
        for _ in range(128):
            writer.write_batch(batch, row_group_size=1 << 30)
    return path.read_bytes()


def _records() -> list[Case]:
    out = ("-o", "out.parquet")
    record = LOG_LINE

    def numbers(text: str) -> str:
        return record.replace("0.1", text)

    def there(place: Place) -> Sequence[str]:
        place.write("out.parquet", "something")
        log = place.write("log.json", record)
        return ["dataset", "import", "--device", "v100", log, *out]

    def missing(place: Place) -> Sequence[str]:
        return ["dataset", "import", "--device", "v100", "nowhere.json", *out]

    def itself(place: Place) -> Sequence[str]:
        file = place.write("records.parquet", _good(place))
        return ["dataset", "merge", file, "-o", file, "--force"]

    def pipe(place: Place) -> Sequence[str]:
        os.mkfifo(place.folder / "log.json")
        return ["dataset", "import", "--device", "v100", "log.json", *out]

    def links(place: Place) -> Sequence[str]:
        place.write("logs/log.json", record)
        os.symlink(place.folder / "logs", place.folder / "logs" / "again")
        return ["dataset", "import", "--device", "v100", "logs", *out]

    return [
        _case(_RECORDS, "a log that is not there", missing, quick=True),
        _case(_RECORDS, "an output that is there", there),
        _case(_RECORDS, "records merged into themselves", itself, ODD),
        _case(_RECORDS, "a log in a pipe", pipe),
        _case(_RECORDS, "a folder of logs in a circle", links, ODD),
        _log("a text that is no log", "x"),
        _log("an empty log", ""),
        _log("a log of zeros", bytes(100_000)),
        _log("a line broken off, --strict", record + record[:60] + "\n", "--strict"),
        _log("a line broken off", record + record[:60] + "\n", codes=(0,)),
        _log("an unknown step, --strict", record + record.replace('"SP"', '"CP"'), "--strict"),
        _log("a damaged .gz, --strict", b"\x1f\x8b\x08\x00half a file", "--strict"),
        _log("a log of one line of 20 MB", '{"i": "' + "x" * 20_000_000, codes=(2,)),
        _log("a log of 100,000 brackets", "[" * 100_000 + "\n"),
        _log("a record with a latency of 1e999", numbers("1e999"), codes=ODD),
        _log("a record with a latency of NaN", numbers("NaN"), codes=ODD),
        _log("a record with a latency of text", numbers('"fast"'), codes=ODD),
        _log("a record with a number of 5,000 digits", numbers("9" * 5000), codes=ODD),
        _log("a record with lone surrogates", record.replace('\\"f\\"', '\\"\\ud800\\"'),
             codes=ODD),
        _log("a log of unknown format", record, "--format", "pytorch"),
        _log("no Parquet to write", record, "-o", "out.csv"),
        _parquet("no Parquet", lambda p: b"PAR1 and nothing more"),
        _parquet("an empty Parquet", lambda p: b""),
        _parquet("Parquet cut in half", lambda p: _good(p)[: len(_good(p)) // 2]),
        _parquet("Parquet whose footer is garbage", lambda p: _good(p)[:-40] + bytes(36) + b"PAR1"),
        _parquet("Parquet of another table", _table(lambda t: t.select(t.column_names[:1]))),
        _parquet("Parquet without rows", _table(lambda t: t.slice(0, 0)), codes=ODD),
        _parquet("Parquet with a column twice as text",
                 _table(lambda t: t.set_column(0, t.column_names[0], [["x"] * t.num_rows]))),
        _parquet("Parquet rewritten by pyarrow", _table(lambda t: t), codes=(0,)),
        _parquet("Parquet of 8 million rows in 200 kB", _bomb, codes=ODD),
        _parquet("Parquet without metadata",
                 _table(lambda t: t.replace_schema_metadata(None)), codes=ODD),
        _parquet("a rate above 1", _good, "sample", "FILE", "--rate", "2", *out),
        _parquet("a rate of NaN", _good, "sample", "FILE", "--rate", "nan", *out),
        _parquet("too few records", _good, "sample", "FILE", "--rate", "0.5", *out),
        _parquet("a device that is not in the records", _good,
                 "split", "FILE", "--split", "by_target", "--hold-out", "k80", "-o", "split"),
        _parquet("parts that are more than all", _good, "split", "FILE", "--split", "by_task",
                 "--test", "0.9", "--validation", "0.9", "-o", "split"),
        _parquet("another format", _good, "export", "FILE", "--format", "metaschedule", "-o", "d"),
        _parquet("row 10^18", _good, "show", "FILE", "--row", str(10**18)),
        _parquet("row -1", _good, "show", "FILE", "--row", "-1"),
        _parquet("a chart to a folder that is not there", _good,
                 "stats", "FILE", "--html", "no/such/folder/x.html"),
    ]  # fmt: skip


def _devices() -> list[Case]:
    def table(name: str, content: str | bytes, codes: tuple[int, ...] = (2,), **more: Any) -> Case:
        def make(place: Place) -> Sequence[str]:
            return ["dataset", "devices", "--devices", place.write("devices.toml", content)]

        return _case(_RECORDS, name, make, codes, **more)

    good = valid.DEVICES
    return [
        _case(_RECORDS, "an unknown device", lambda p: ["dataset", "devices", "rtx9999"],
              quick=True),
        table("a wrong table of devices", "[[device]]\nname = 3\n", quick=True),
        table("a table of devices that is no TOML", "[[["),
        table("a table of devices that is not UTF-8", b"\xff\xfe"),
        table("a device twice", good + good.partition("\n\n")[2]),
        table("a device of -8 units", good.replace("units = 8", "units = -8"), ODD),
        table("a device of units that are text", good.replace("units = 8", 'units = "many"')),
        table("a device of an infinite clock", good.replace("3.0", "inf"), ODD),
        table("a device of an unknown fact", good + "colour = 'red'\n"),
        table("a device whose name steers the terminal",
              good.replace("My processor", "My\\u001b[2J\\nprocessor"), ODD),
    ]  # fmt: skip


def _models() -> list[Case]:
    def archive(name: str, change: Callable[[bytes], bytes], codes: tuple[int, ...] = (2,),
                command: str = "evaluate") -> Case:  # fmt: skip
        def make(place: Place) -> Sequence[str]:
            file = place.write("model.zip", change(place.world.cost_model.read_bytes()))
            records = [str(place.world.records)] if command == "evaluate" else []
            return ["costmodel", command, file, *records]

        return _case(_MODELS, name, make, codes)

    def without(ending: str) -> Callable[[bytes], bytes]:
        return lambda whole: rezipped(whole, {}, left_out=[ending])

    def card(change: Callable[[Any], Any]) -> Callable[[bytes], bytes]:
        def edit(content: bytes) -> bytes:
            return json.dumps(change(json.loads(content))).encode()

        return lambda whole: rezipped(whole, {"card.json": edit})

    def damaged(place: Place) -> Sequence[str]:
        place.write("model/card.json", '{"schema": "tunefleet-costmodel/1"')
        return ["costmodel", "show", "model"]

    def waits(place: Place) -> Sequence[str]:
        (place.folder / "model").mkdir()
        os.mkfifo(place.folder / "model" / "card.json")
        return ["costmodel", "show", "./model"]

    def no_archive(place: Place) -> Sequence[str]:
        return ["costmodel", "show", place.write("model.zip", b"PK\x03\x04 and nothing more")]

    def steering(place: Place) -> Sequence[str]:
        whole = place.world.cost_model.read_bytes()
        file = place.write("model.zip", rezipped(whole, {"member-0.bin": lambda old: b"tree\n"}))
        return ["tune", "zoo:tiny_cnn", "--trials", "2", "--pretrained", file]

    def train(name: str, *options: str, codes: tuple[int, ...] = (2,)) -> Case:
        return _case(_MODELS, name, lambda place: [
            "costmodel", "train", str(place.world.records), "--name", "mine", *options], codes,
        )  # fmt: skip

    return [
        _case(_MODELS, "a damaged card", damaged, quick=True),
        _case(_MODELS, "a card that is a pipe", waits, quick=True),
        _case(_MODELS, "a damaged archive of a model", no_archive),
        _case(_MODELS, "tuning with a damaged model", steering),
        archive("a model cut in half", lambda whole: whole[: len(whole) // 2]),
        archive("a model without a card", without("card.json")),
        archive("a model without its members", without(".bin")),
        archive("a model of other bytes",
                lambda whole: rezipped(whole, {"member-0.bin": lambda old: b"tree\n" * 99})),
        archive("a card that is a list", card(lambda value: [value])),
        archive("a card without files", card(lambda value: value | {"files": []})),
        archive("a card of another kind of model", card(lambda value: value | {"model": "mlp"})),
        archive("a card of another schema", card(lambda value: value | {"schema": "x/9"})),
        archive("a card of 8 GiB", lambda whole: bomb("card.json"), (2, 6), "show"),
        train("an unknown kind of model", "--model", "svm"),
        train("unknown features", "--features", "pixels/1"),
        train("a split of too few records"),
        train("a split without what it holds out", "--split", "by_network"),
        train("a name with a folder", "--name", "../mine"),
        train("a parent that nobody trained", "--parent", "nobody"),
        train("CUDA for a model that has no use for it", "--model", "xgb", "--device", "cuda"),
        _case(_MODELS, "an unknown cost model to test",
              lambda p: ["costmodel", "evaluate", "mine", str(p.world.records)]),
    ]  # fmt: skip
