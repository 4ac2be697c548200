"""`tunefleet timeline`: where and when the stages of a run ran."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tunefleet.cli import options, output, parsing
from tunefleet.errors import InputError


def timeline(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="A job id or run id that `jobs` lists, or its first 6 characters or more.",
            show_default=False,
        ),
    ],
    directory: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            callback=parsing.directory,
            help="Where the chart goes, as timeline-ID.html and timeline-ID.png.",
        ),
    ] = Path(),
    durations: Annotated[
        str | None,
        typer.Option(
            metavar="OUT.json",
            callback=parsing.writable,
            help="Also write the run's stage seconds for `simulate --durations`.",
        ),
    ] = None,
    trace: Annotated[
        str | None,
        typer.Option(
            metavar="OUT.json",
            callback=parsing.writable,
            help="Also write it in the Trace Event format, for Perfetto or chrome://tracing.",
        ),
    ] = None,
    json: options.Json = None,
    server: options.OnServer = None,
    home: options.Home = None,
    traceback: options.Traceback = False,
) -> None:
    """Draw which stages of a run ran where and when.

    It also says how well resources were used.
    """
    from tunefleet.report.trace_events import trace_events
    from tunefleet.runs.timeline import replay_of, run_timeline

    if server is None:
        document = run_timeline(run, home)
    else:
        from tunefleet.cli.remote import client_of

        with client_of(server) as client:
            document = client.run_timeline(run)
    recorded = replay_of(document).to_json() if durations is not None else None
    drawings = _draw(document, directory)
    if parsing.STDOUT not in (json, durations, trace):
        _show(document, drawings)
    if json is not None:
        output.write_json(json, document)
    if durations is not None:
        output.write_json(durations, recorded)
    if trace is not None:
        output.write_json(trace, trace_events(document))


def _draw(document: dict[str, Any], directory: Path) -> list[Path]:
    from tunefleet.report.run_timeline import timeline_page, timeline_png

    name = f"timeline-{document['job'][:8]}"
    drawings = {
        directory / f"{name}.html": timeline_page(document).encode(errors="replace"),
        directory / f"{name}.png": timeline_png(document),
    }
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for path, content in drawings.items():
            path.write_bytes(content)
    except OSError as error:
        raise InputError(
            f"cannot write {directory}/{name}: {error.strerror}", cure="choose another --output"
        ) from error
    return list(drawings)


def _show(document: dict[str, Any], drawings: list[Path]) -> None:
    from tunefleet.report.run_timeline import (
        jobs_table,
        resources_table,
        timeline_facts,
        timeline_notes,
    )
    from tunefleet.report.text import pairs

    console = output.console()
    for table in (resources_table(document), jobs_table(document)):
        console.print(table)
        console.print()
    console.print(pairs(timeline_facts(document)))
    console.print()
    for note in timeline_notes(document):
        console.print(note, style="dim", soft_wrap=True)
    for path in drawings:
        console.print(f"wrote {path}", soft_wrap=True)
