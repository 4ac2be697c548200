"""`tunefleet dataset sample`: reduces the number of training records."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tunefleet.cli import options, output, parsing
from tunefleet.cli.dataset import arguments
from tunefleet.cli.outcome import one_line

if TYPE_CHECKING:
    import pyarrow as pa

    from tunefleet.dataset.rows import Codes, Rows
    from tunefleet.dataset.sampling import SampleSize

SCHEMA = "tunefleet-sample/1"
METHODS = ("flops", "random", "diversity")


def _method(value: str) -> str:
    return parsing.one_of(METHODS, value, "method")


def _rate(value: float) -> float:
    if not 0 < value <= 1:
        raise typer.BadParameter(f"{value:g} is not a share between 0 and 1")
    return value


def sample(
    records: arguments.Records,
    out: arguments.ParquetOutput,
    rate: Annotated[
        float,
        typer.Option(metavar="R", callback=_rate, help="Maximum share of the records to keep."),
    ],
    method: Annotated[
        str,
        typer.Option(
            metavar="|".join(METHODS),
            callback=_method,
            help="flops: whole tasks, in proportion to their FLOPs; random: any records; "
            "diversity: different programs of every task.",
        ),
    ] = "flops",
    seed: arguments.Seed = 0,
    min_records: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            callback=parsing.positive,
            help="Skip tasks with fewer valid records. [default: 16]",
            show_default=False,
        ),
    ] = None,
    force: arguments.Force = False,
    json: options.Json = None,
    traceback: options.Traceback = False,
) -> None:
    """Keep a part of the records, from tasks with enough records."""
    from tunefleet.dataset import files, parquet
    from tunefleet.dataset.rows import Rows
    from tunefleet.dataset.sampling import MIN_RECORDS, SampleSize
    from tunefleet.dataset.schema import BATCH_ROWS

    arguments.check_free(Path(out), force)
    table = parquet.read_table(records)
    rows = Rows.of(table)
    amount = SampleSize(rate, min_records or MIN_RECORDS)
    kept = _kept(method, table, rows, amount, seed)
    with files.Draft(Path(out)) as draft:
        parquet.write(table.take(kept).to_batches(BATCH_ROWS), draft)
    figures: dict[str, Any] = {
        "schema": SCHEMA,
        "output": out,
        "method": method,
        "rate": rate,
        "seed": seed,
        "min_records": amount.min_records,
        "read": len(rows),
        "valid": int(rows.valid.sum()),
        "tasks_read": len(set(rows.task.tolist())),
        "records": len(kept),
        "tasks": len(set(rows.task[kept].tolist())),
    }
    text = (
        f"{figures['records']:,} of {figures['read']:,} records in {one_line(out)}, "
        f"{figures['tasks']:,} of {figures['tasks_read']:,} tasks"
    )
    output.tell(json, figures, lambda: typer.echo(text))


def _flops(table: pa.Table) -> dict[str, float]:
    """FLOPs by workload; workload names of two formats never coincide. Reports unknown ones."""
    from tunefleet.dataset.flops import flops_by_workload

    counts = flops_by_workload(table.to_batches())
    flops = {workload: known.count for (_, workload), known in counts.items() if known.count}
    if len(flops) < len(counts):
        typer.echo(
            f"skipped {len(counts) - len(flops):,} of {len(counts):,} workloads with unknown FLOPs",
            err=True,
        )
    return flops


def _kept(method: str, table: pa.Table, rows: Rows, amount: SampleSize, seed: int) -> Codes:
    from tunefleet.dataset import sampling

    if method == "random":
        return sampling.uniform(rows, amount, seed)
    if method == "flops":
        return sampling.by_flops(rows, amount, _flops(table), seed)
    from tunefleet.features.sequences import Sequences

    words = rows.steps.words
    sequences = Sequences.of(words.names, words.codes, rows.steps.lengths)
    return sampling.diverse(rows, amount, sequences.projected(), seed)
