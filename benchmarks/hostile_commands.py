"""Options, names, streams, signals and limits: what is wrong is the call, not a file."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Sequence
from typing import Any

import hostile_valid as valid
from hostile_case import ODD, Case, Place, Signal, Skipped

_PATHS, _ZOO, _OPTIONS = "Paths", "Names of the zoo", "Options"
_STREAMS, _SIGNALS, _MACHINE = "Streams and terminals", "Signals", "Limits of the machine"

#: Enough of a search to be stopped in any of its phases.
_TUNE = ("tune", "zoo:tiny_cnn", "--trials", "8", "--threads", "1")


def cases() -> list[Case]:
    return [*_paths(), *_zoo(), *_options(), *_streams(), *_signals(), *_machine()]


def _paths() -> list[Case]:
    def at(name: str, path: str | bytes, *, quick: bool = False, codes: tuple[int, ...] = (2,)):  # type: ignore[no-untyped-def]
        return Case(_PATHS, name, lambda place: ["tasks", path], codes, quick=quick)

    def made(name: str, make: Callable[[Place], Any], path: str | bytes = "network.onnx",
             codes: tuple[int, ...] = (2,), quick: bool = False) -> Case:  # fmt: skip
        def build(place: Place) -> Sequence[str | bytes]:
            make(place)
            return ["tasks", path]

        return Case(_PATHS, name, build, codes, quick=quick)

    def file(place: Place, name: str | bytes) -> None:
        (place.folder / os.fsdecode(name)).write_bytes(valid.convolution())

    def named(what: str, name: str | bytes, given: str | bytes | None = None) -> Case:
        """A legal network by an odd name."""
        return made(what, lambda place: file(place, name), given or name, (0,))

    def bound(place: Place) -> None:
        """By an address that is short where the folder's is not."""
        descriptor = os.open(place.folder, os.O_RDONLY)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(f"/proc/self/fd/{descriptor}/network.onnx")
        os.close(descriptor)

    def link(target: str) -> Callable[[Place], None]:
        return lambda place: os.symlink(target, place.folder / "network.onnx")

    def unreadable(place: Place) -> None:
        if os.geteuid() == 0:
            raise Skipped("the superuser may read every file")
        file(place, "network.onnx")
        (place.folder / "network.onnx").chmod(0)

    return [
        at("missing file", "nowhere.onnx", quick=True),
        at("an empty name", ""),
        at("a name of spaces", "   "),
        at("unknown suffix", "network.txt", quick=True),
        at("no suffix", "network"),
        at("a state dictionary", "weights.pth"),
        at("an old Keras file", "network.h5"),
        at("the current folder", "."),
        at("the root folder", "/"),
        at("a name with a NUL in a percent sign", "a%00.onnx"),
        at("an address of the web", "https://example.com/network.onnx"),
        at("a name that is too long", "n" * 300 + ".onnx"),
        at("a path that is too long", "a/" * 3000 + "n.onnx"),
        at("a name that is not UTF-8, missing", b"\xff\xfe.onnx"),
        at("a missing name that steers the terminal", "a\x1b[2J\nb\r.onnx"),
        at("a file below a file", "/dev/null/network.onnx"),
        at("the memory of the process", "/proc/self/mem"),
        made("a directory", lambda p: (p.folder / "network.onnx").mkdir(), quick=True),
        made("a pipe", lambda p: os.mkfifo(p.folder / "network.onnx"), quick=True),
        made("a socket", bound),
        made("a link to nothing", link("nowhere.onnx")),
        made("a link to itself", link("network.onnx")),
        made("a link to /dev/zero", link("/dev/zero")),
        made("a link to /dev/urandom", link("/dev/urandom")),
        made("a link to the input of the terminal", link("/dev/stdin")),
        made("a file that may not be read", unreadable),
        named("a name with a line break", "a\nb.onnx"),
        named("a name that steers the terminal", "a\x1b[2J\rb.onnx"),
        named("a name with quotes and a command", "a'b\"$(touch canary)`id`;.onnx"),
        named("a name that is not UTF-8", b"caf\xe9.onnx"),
        named("a name of markup", "[bold red]x.onnx"),
        named("a name of 255 bytes", "n" * 250 + ".onnx"),
        named("a name that begins with a dash", "-n.onnx", "./-n.onnx"),
        at("a name that looks like an option", "-n.onnx"),
        named("a suffix in capitals", "NETWORK.ONNX"),
        named("a name that is only a suffix", "a.onnx.onnx"),
        named("a name in other letters", "网络-сеть-🦊.onnx"),
        named("a name written from right to left", "a\u202exnno.onnx"),
    ]


def _zoo() -> list[Case]:
    names = {
        "unknown zoo name": "zoo:resnet51",
        "a zoo name of nothing": "zoo:",
        "a zoo name in a folder": "zoo:../../etc/passwd",
        "a zoo name that is a command": "zoo:$(touch canary)",
        "a zoo name in capitals": "ZOO:resnet18",
        "unknown zoo parameter": "zoo:resnet50?bacth=4",
        "zoo parameter not a number": "zoo:resnet50?batch=four",
        "zoo parameter too small": "zoo:resnet50?size=1",
        "zoo parameter too large": "zoo:resnet50?batch=" + "9" * 30,
        "zoo parameter of 5,000 digits": "zoo:resnet50?batch=" + "9" * 5000,
        "zoo parameter negative": "zoo:resnet50?batch=-1",
        "zoo parameter infinite": "zoo:resnet50?batch=inf",
        "zoo parameter twice": "zoo:resnet50?batch=1&batch=2",
        "zoo parameter without a value": "zoo:resnet50?batch=",
        "zoo parameters of nothing": "zoo:resnet50?&&&",
        "a seed of 2^64": f"zoo:tiny_cnn?seed={2**64}",
    }
    quick = {"unknown zoo name", "unknown zoo parameter"}
    odd = {"zoo parameters of nothing", "a seed of 2^64"}
    return [
        Case(_ZOO, what, lambda place, name=name: ["tasks", name],  # type: ignore[misc]
             ODD if what in odd else (2,), quick=what in quick)
        for what, name in names.items()
    ]  # fmt: skip


def _call(name: str, *arguments: str, codes: tuple[int, ...] = (2,), **options: Any) -> Case:
    return Case(_OPTIONS, name, lambda place: arguments, codes, **options)


def _options() -> list[Case]:
    tune = ("tune", "zoo:tiny_cnn")
    numbers = {
        "--trials": ("-5", "0", "1.5", "nan", "many", "9" * 30),
        "--minutes": ("0", "-1", "nan", "inf", "1e308", "soon"),
        "--target-latency-ms": ("0", "-1", "nan", "inf", "fast"),
        "--batch": ("0", "-1", "x"),
        "--first-batch": ("0",),
        "--profile-timeout": ("0", "nan", "inf"),
        "--build-timeout": ("-1", "nan", "inf"),
        "--population": ("0", "-3"),
        "--generations": ("-1",),
        "--seed": ("x", "-1", "9" * 30),
        "--threads": ("0", "-1", "4096", "9" * 30),
        "--host-cores": ("x", "99", "3-1", "-1", "0-9999999999", ""),
        "--device-cores": ("99", "0,,1"),
    }
    words = {
        "--cost-model": ("oracle", ""),
        "--policy": ("random",),
        "--pretrained": ("nobody", "", "../x"),
        "--target": ("llvm -mcpu=pentium99", "sapphirerapids", "cuda", "", "x" * 10_000, "{}",
                     "llvm -num-cores=-1"),
        "--shape": ("x", "x=", "=1", "x=-1", "x=1,2,3", "image=9999999999,3,16,16", "x=a"),
        "--dim": ("x", "x=", "batch=0", "batch=-1", "batch=4", "=4"),
        "--constant": ("speed=1", "x=fast", "image", "x=nan"),
        "--inputs": ("nowhere.npz", "inputs.txt", ""),
        "--json": ("no/such/folder/r.json", "/"),
    }  # fmt: skip
    # A seed is any number; an empty name of nothing may mean the default.
    odd = {("--seed", "-1"), ("--seed", "9" * 30)}
    legal = ("--trials", "1", "--minutes", "0.001")
    wrong = [
        _call(f"{option} {_short(text)}", *tune, "--trials", "2", f"{option}={text}",
              codes=(*ODD, 130) if (option, text) in odd else (2, 3), most_s=100)
        for option, texts in (*numbers.items(), *words.items())
        for text in texts
    ]  # fmt: skip
    quick = {"--trials -5", "--minutes nan", "--policy random"}
    return [
        *(Case(**(vars(case) | {"quick": case.name in quick})) for case in wrong),
        _call("an unknown command", "tnue", "zoo:tiny_cnn"),
        _call("an unknown option", *tune, "--trails", "8"),
        _call("an option without its value", *tune, "--trials"),
        _call("no network", "tune"),
        _call("no command", codes=(0,)),
        _call("a command of control characters", "\x1b[2J\n"),
        _call("two networks for a command of one", "tasks", "zoo:tiny_cnn", "zoo:resnet18"),
        _call("the same network twice", "tune", "zoo:tiny_cnn", "zoo:tiny_cnn", *legal),
        _call("the same network by two spellings", "tune", "zoo:tiny_cnn", "zoo:tiny_cnn?batch=1",
              *legal, most_s=100),
        _call("threads and cores that do not agree", *tune, *legal, "--threads", "1",
              "--device-cores", "0,1", codes=ODD, most_s=100),
        _call("a thousand networks", "tune", *(f"zoo:tiny_cnn?seed={n}x" for n in range(1000)),
              *legal),
        _call("an option of 100,000 letters", *tune, "--device-key", "k" * 100_000, "--trials",
              "0"),
        _call("the same option twice", "tasks", "zoo:tiny_cnn", "--threads", "1", "--threads", "0"),
        _call("a shape for an input that is not there", "tasks", "zoo:tiny_cnn", "--shape",
              "nowhere=1,2"),
        _call("a device to hold out of nothing", "dataset", "split"),
        _call("a network nobody has", "dataset", "collect", "--networks", "zoo:nothing",
              codes=(2, 6)),
        _call("a network to collect given twice", "dataset", "collect", "--networks",
              "zoo:tiny_cnn", "--networks", "zoo:tiny_cnn"),
        _call("-5 programs per task", "dataset", "collect", "--networks", "zoo:tiny_cnn",
              "--programs-per-task", "-5"),
        _call("jobs that are gathered from nowhere", "dataset", "gather", "-o", "x.parquet"),
        _call("a short name of a job", "pause", "12"),
        _call("a name of a job of quotes", "cancel", "'; DROP TABLE jobs; --"),
        _call("a simulation of 0 jobs", "simulate", "--jobs", "0"),
        _call("a simulation of 10^12 jobs", "simulate", "--jobs", "1" + "0" * 12),
        _call("a simulation of -1 devices", "simulate", "--devices", "-1"),
        _call("a simulation of an infinite spread", "simulate", "--durations", "spread",
              "--spread", "inf"),
        _call("a simulation of a file that is not there", "simulate", "--durations", "x.json"),
        _call("a chart of an unknown kind", "simulate", "--gantt", "x.bmp"),
        _call("0 rounds of measuring", "evaluate", "nowhere", "--rounds", "0"),
        _call("doctor with cores that are not there", "doctor", "--host-cores", "0-512",
              codes=(2, 3)),
    ]  # fmt: skip


def _short(text: str) -> str:
    text = text or "''"
    return text if len(text) <= 40 else f"{text[:8]}... ({len(text):,} characters)"


def _stream(
    name: str, shell: str, *arguments: str, codes: tuple[int, ...] = (0,), **options: Any
) -> Case:
    given = arguments or ("tasks", "zoo:tiny_cnn")
    return Case(_STREAMS, name, lambda place: given, codes, shell=shell, **options)


def _streams() -> list[Case]:
    jobs, bad = ("networks",), ("tasks", "nowhere.onnx")
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}

    def environment(name: str, **values: str) -> Case:
        return Case(_STREAMS, name, lambda place: ["tasks", "zoo:tiny_cnn"], (0,),
                    environment=values)  # fmt: skip

    return [
        _stream("stdout closed", 'exec "$@" >&-'),
        _stream("stderr closed", 'exec "$@" 2>&-'),
        _stream("stdin closed", 'exec "$@" <&-'),
        _stream("all streams closed", 'exec "$@" <&- >&- 2>&-'),
        _stream("stderr closed, and an error", 'exec "$@" 2>&-', *bad, codes=(2,), silent=True),
        _stream("stdout full", 'exec "$@" >/dev/full', *jobs, codes=(3,)),
        _stream("stdout full, a table", 'exec "$@" >/dev/full', codes=(3,)),
        _stream("stdout full, JSON", 'exec "$@" --json - >/dev/full', codes=(3,)),
        _stream("stderr full, and an error", 'exec "$@" 2>/dev/full', *bad, codes=(2,),
                silent=True),
        _stream("tuning with stderr full", 'exec "$@" 2>/dev/full', *_TUNE, most_s=100),
        _stream("tuning with stdout full", 'exec "$@" >/dev/full', *_TUNE, codes=(0, 3),
                most_s=100),
        _stream("tuning with all streams closed", 'exec "$@" <&- >&- 2>&-', *_TUNE, most_s=100),
        _stream("a reader that ends at once", 'set -o pipefail; "$@" | true', codes=(0, 141)),
        _stream("a reader of one line", 'set -o pipefail; "$@" | head -n 1 >/dev/null', *jobs,
                codes=(0, 141)),
        _stream("stdin of /dev/zero", 'exec "$@" </dev/zero'),
        environment("a terminal of ASCII", **ascii_only),
        environment("a locale that does not exist", LC_ALL="xx_YY.UTF-99"),
        environment("an output of UTF-16", PYTHONIOENCODING="utf-16"),
        environment("a dumb terminal", TERM="dumb"),
        environment("no name of a terminal", TERM=""),
        environment("10 columns", COLUMNS="10"),
        environment("1 column", COLUMNS="1"),
        environment("0 columns", COLUMNS="0"),
        environment("-5 columns", COLUMNS="-5"),
        environment("columns of letters", COLUMNS="abc"),
        environment("10^9 columns", COLUMNS="1000000000"),
        environment("colour asked for", FORCE_COLOR="1"),
        Case(_STREAMS, "an error on a terminal of ASCII", lambda place: ["tasks", "网络.onnx"],
             (2,), environment=ascii_only),
    ]  # fmt: skip


def _signals() -> list[Case]:
    def sent(number: signal.Signals, word: str, moment: str, *codes: int) -> Case:
        return Case(
            _SIGNALS, f"{number.name} {moment}", lambda place: _TUNE,
            codes or (128 + number,), signal=Signal(number, word), most_s=60,
        )  # fmt: skip

    moments = {"": "at the start", "import": "as it imports", "tune": "as it searches",
               "measure": "as it measures"}  # fmt: skip
    cases = []
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        for word, moment in moments.items():
            # Before Python runs our code the signal does what it does to any program.
            early = (130, 128 + number, -number) if not word else (128 + number,)
            cases.append(sent(number, word, moment, *early))
    # Nobody handles SIGQUIT: the kernel ends the program.
    cases += [sent(signal.SIGQUIT, word, moments[word], -signal.SIGQUIT) for word in ("", "tune")]
    return cases


def _machine() -> list[Case]:
    def limited(
        name: str, limit: str, *arguments: str, codes: tuple[int, ...] = ODD, **options: Any
    ) -> Case:
        """A command with less than it needs may be refused, or do with less."""
        given = arguments or ("tasks", "zoo:tiny_cnn")
        return Case(_MACHINE, name, lambda place: given, codes,
                    shell=f'ulimit {limit} && exec "$@"', **options)  # fmt: skip

    def scratch(name: str, path: str, *arguments: str, codes: tuple[int, ...] = (2, 3)) -> Case:
        given = arguments or ("tasks", "zoo:tiny_cnn")
        return Case(_MACHINE, name, lambda place: given, codes, environment={"TMPDIR": path},
                    most_s=60)  # fmt: skip

    def long(place: Place) -> Sequence[str]:
        (place.folder / ("t" * 120)).mkdir()
        return ["tasks", "zoo:tiny_cnn"]

    mounted = 'mkdir full && mount -t tmpfs -o size={size} none full && {variable}="$PWD/full" "$@"'

    def full(name: str, size: str, variable: str, *arguments: str) -> Case:
        def make(place: Place) -> Sequence[str]:
            if os.system("unshare --mount true 2>/dev/null"):
                raise Skipped("nothing can be mounted here")
            return arguments

        # The mount is seen by this command alone, and goes with it.
        line = mounted.format(size=size, variable=variable)
        return Case(_MACHINE, name, make, (0, 2, 3, 6), most_s=60,
                    shell=f"exec unshare --mount bash -c '{line}' bash \"$@\"")  # fmt: skip

    tasks = ("tasks", "zoo:tiny_cnn")
    return [
        limited("64 open files", "-n 64"),
        limited("16 open files", "-n 16"),
        limited("64 open files to tune with", "-n 64", *_TUNE, most_s=100),
        limited("an address space of 1 GB", "-v 1000000", silent=True),
        limited("an address space of 4 GB", "-v 4000000"),
        limited("a stack of 256 kB", "-s 256"),
        limited("files of at most 100 kB", "-f 100"),
        limited("files of at most 100 kB to tune with", "-f 100", *_TUNE, most_s=100),
        limited("files of at most 0 bytes", "-f 0", silent=True),
        limited("10 s of processor time", "-t 10", codes=(*ODD, 137, 152, -9, -24)),
        scratch("a temporary folder that is not there", "/nowhere", codes=ODD),
        scratch("a temporary folder that is a file", "/etc/passwd", codes=ODD),
        Case(_MACHINE, "a temporary folder with a long name", long, ODD,
             environment={"TMPDIR": "t" * 120}),
        full("a temporary folder that is full", "4k", "TMPDIR", *tasks),
        Case(_MACHINE, "no home and no user", lambda place: ["jobs"], ODD,
             shell='unset HOME TUNEFLEET_HOME; exec "$@"'),
        Case(_MACHINE, "no PATH", lambda place: tasks, ODD, environment={"PATH": ""}),
        Case(_MACHINE, "a folder that was removed", lambda place: tasks, ODD,
             shell='mkdir gone && cd gone && rmdir ../gone && exec "$@"'),
        Case(_MACHINE, "threads by the environment", lambda place: tasks, ODD,
             environment={"TVM_NUM_THREADS": "-7", "OMP_NUM_THREADS": "x"}),
    ]  # fmt: skip
