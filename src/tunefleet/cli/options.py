"""The options that commands share, each declared and checked once.

The only place where an environment variable is read (`HOME_VARIABLE`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tunefleet.cli import help as sections
from tunefleet.cli import parsing
from tunefleet.scheduler.names import POLICY_NAMES

HOME_VARIABLE = "TUNEFLEET_HOME"
SERVER_VARIABLE = "TUNEFLEET_SERVER"


def _home(context: typer.Context, value: Path | None) -> Path | None:
    """As `directory`; a bug is reported below it. A group's is that of its commands too."""
    home = parsing.directory(value)
    if context.obj is not None and home is not None:
        context.obj.home = home
    return home


def _ask_for_traceback(context: typer.Context, value: bool) -> None:
    if value and context.obj is not None:
        context.obj.traceback = True


def _print_version(value: bool) -> None:
    if value:
        from tunefleet import __version__

        typer.echo(f"tunefleet {__version__}")
        raise typer.Exit


Version = Annotated[
    bool,
    typer.Option(
        "--version", is_eager=True, callback=_print_version, help="Print the version and exit."
    ),
]


def _complete_network(incomplete: str) -> list[str]:
    """Networks of the zoo that begin so."""
    from tunefleet.cli.networks import ABOUT

    return [f"zoo:{name}" for name in ABOUT if f"zoo:{name}".startswith(incomplete)]


Network = Annotated[
    str,
    typer.Argument(
        metavar="NETWORK",
        autocompletion=_complete_network,
        help="An .onnx or .pt2 file, or a network of the zoo: zoo:resnet50?batch=4.",
        show_default=False,
    ),
]
Networks = Annotated[
    list[str],
    typer.Argument(
        metavar="NETWORK",
        autocompletion=_complete_network,
        callback=parsing.different,
        help="One network or several: .onnx or .pt2 files, or networks of the zoo: "
        "zoo:resnet50?batch=4.",
        show_default=False,
    ),
]
RequireSigned = Annotated[
    Path | None,
    typer.Option(
        metavar="KEY.pub", help="Refuse an artifact that the owner of this key did not sign."
    ),
]
Artifact = Annotated[
    str,
    typer.Argument(
        metavar="ARTIFACT", help="A directory that tune wrote, or its run id.", show_default=False
    ),
]
Target = Annotated[
    str,
    # Named: some versions of typer take the case of a metavar that is the name.
    typer.Option(
        "--target",
        metavar="TARGET",
        rich_help_panel=sections.PLACE,
        help="A TVM target; native is this machine's processor.",
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        callback=parsing.positive,
        rich_help_panel=sections.PLACE,
        help="Threads that the code will use; the default is one per physical core.",
    ),
]
Shape = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        metavar="INPUT=N,N,...",
        callback=parsing.shapes,
        rich_help_panel=sections.NETWORK,
        help="The shape of an input; repeat for others, or for more shapes of one.",
    ),
]
Dim = Annotated[
    list[str] | None,
    typer.Option(
        "--dim",
        metavar="NAME=N[,N...]",
        callback=parsing.dims,
        rich_help_panel=sections.NETWORK,
        help="The value of a free dimension; several make one artifact that takes all of them.",
    ),
]
Constant = Annotated[
    list[str] | None,
    typer.Option(
        "--constant",
        metavar="INPUT=V[,V...]",
        callback=parsing.constants,
        rich_help_panel=sections.NETWORK,
        help="An input that always has this value: the network is tuned without it.",
    ),
]
Whole = Annotated[
    bool,
    typer.Option(
        "--whole",
        rich_help_panel=sections.NETWORK,
        help="Refuse a network of which a part would stay in its source framework.",
    ),
]
Trust = Annotated[
    bool,
    typer.Option(
        "--trust",
        rich_help_panel=sections.NETWORK,
        help="Read files whose content is run as code by reading it: pickle in a .pt2 file.",
    ),
]
Precision = Annotated[
    str,
    typer.Option(
        metavar="float32|fp16|bf16|int8",
        rich_help_panel=sections.NETWORK,
        help="float32 is a network as it is; fp16 (GPUs) and bf16 compute products in 16-bit "
        "floats; int8 quantises ONNX files and networks of the zoo.",
    ),
]
Calibrate = Annotated[
    Path | None,
    typer.Option(
        metavar="DATA",
        rich_help_panel=sections.NETWORK,
        help="Inputs to quantise an ONNX file with: a .npz or .npy file, or a folder of them.",
    ),
]
Inputs = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="FILE",
        rich_help_panel=sections.NETWORK,
        help="Inputs to check and measure with: a .npz file of arrays by name; one file for each "
        "shape where there are several.",
    ),
]
Policy = Annotated[
    str,
    typer.Option(
        metavar="|".join(POLICY_NAMES),
        callback=parsing.policy,
        rich_help_panel=sections.PLACE,
        help="Which ready stage starts on a free resource.",
    ),
]
LookAhead = Annotated[
    bool | None,
    typer.Option(
        "--look-ahead/--no-look-ahead",
        rich_help_panel=sections.PLACE,
        help="Let an idle host select and build a task's next batch before the last one is"
        " measured; predictive does.",
        show_default=False,
    ),
]
AllowInterference = Annotated[
    bool,
    typer.Option(
        "--allow-interference",
        rich_help_panel=sections.PLACE,
        help="For experiments: candidates of all networks may be measured at once. Such records"
        " serve no other job.",
    ),
]
HostCores = Annotated[
    str | None,
    typer.Option(
        metavar="LIST",
        callback=parsing.cores,
        rich_help_panel=sections.PLACE,
        help="Cores that select, build and learn, such as 0,2-3; the default is those that the "
        "device leaves.",
    ),
]
DeviceCores = Annotated[
    str | None,
    typer.Option(
        metavar="LIST",
        callback=parsing.cores,
        rich_help_panel=sections.PLACE,
        help="Cores that measure; the default is all, or the last N with --threads N.",
    ),
]
Home = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        envvar=HOME_VARIABLE,
        is_eager=True,
        callback=_home,
        help="Where records and artifacts are kept.",
    ),
]
Server = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        envvar=SERVER_VARIABLE,
        help="Ask this service, after `tunefleet login URL`.",
    ),
]
OnServer = Annotated[
    str | None,
    typer.Option(
        "--server", metavar="URL", help="Let this service do it, after `tunefleet login URL`."
    ),
]
Devices = Annotated[
    list[str] | None,
    typer.Option(
        "--device",
        metavar="NAME",
        rich_help_panel=sections.PLACE,
        help="Measure on this device of `tunefleet devices` instead of this machine's processor: "
        "`cuda:0` is its first GPU. Given again: on all of them at once. `local` is the processor.",
    ),
]
DeviceKind = Annotated[
    str,
    typer.Option(
        metavar="KIND",
        rich_help_panel=sections.PLACE,
        help="Measure on all devices of a kind: cpu, cuda, or the name of their hardware.",
    ),
]
DeviceKey = Annotated[
    str,
    typer.Option(
        metavar="KEY",
        rich_help_panel=sections.PLACE,
        help="Your name for the device: records stay apart by it.",
    ),
]
Json = Annotated[
    str | None,
    typer.Option(
        "--json",
        metavar="OUT",
        callback=parsing.writable,
        help="Also write it all as JSON; - is stdout, and then nothing else goes there.",
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress, only warnings and the result.")]
Traceback = Annotated[
    bool,
    typer.Option(
        "--traceback",
        is_eager=True,
        callback=_ask_for_traceback,
        help="Show where an error comes from.",
    ),
]
