"""PyTorch's own samples of its operators and modules as networks: which are compiled whole, and
whether they give what PyTorch gives.

    python benchmarks/torch_samples.py [--part operators|modules] [--samples 3] [--json FILE]

PyTorch tests itself with these (`op_db`, `module_db`; pip install expecttest). A sample becomes an
exported program whose inputs are its tensors; whatever else it is called with is part of it. What
is random, has an empty tensor or gives no tensor is left out, and what torch.export refuses is
PyTorch's to answer. No task is tuned: the compiled network is compared with PyTorch.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import select
import signal
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import common
from common import Check, Skip, at_most, table
from tunefleet.compiler.toolchain import load_tvm

tvm = load_tvm()

from tunefleet.artifacts.tensors import array_of, tensor_of  # noqa: E402
from tunefleet.compiler.frontends import ImportRequest, load_network  # noqa: E402
from tunefleet.compiler.graph.pipeline import prepare  # noqa: E402
from tunefleet.compiler.toolchain.host import native_target, to_tvm  # noqa: E402
from tunefleet.errors import InternalError, TunefleetError  # noqa: E402

_WHOLE, _STAYS, _FAILED, _DIFFERS = "whole", "stays in PyTorch", "failed", "differs"
_UNKNOWN = "differs where NaN is met"
_LEFT_OUT, _NOT_EXPORTED = "left out", "not exported"
_KINDS = (_WHOLE, _STAYS, _UNKNOWN, _DIFFERS, _FAILED, _NOT_EXPORTED, _LEFT_OUT)
#: Of float32: sums in another order, and functions that are approximated. The second is of the
#: largest output.
_RELATIVE, _ABSOLUTE = 1e-3, 1e-4
_TIME_LIMIT_S = 150.0
#: A sample in so many is taken of those that there are, which may be thousands.
_MOST_SEEN = 60

Call = Callable[[], tuple[Any, Sequence[Any]]]
Result = tuple[str, str]


@dataclass(frozen=True)
class Case:
    """An operator or module; `samples` makes modules with their inputs."""

    name: str
    samples: Callable[[], list[Call]]


def main(options: argparse.Namespace) -> int:
    began = time.time()
    warnings.filterwarnings("ignore")
    count, step = (1, 25) if options.quick else (options.samples, 1)
    cases = [case for part in options.part for case in _PARTS[part](count)]
    if options.only:
        cases = [case for case in cases if case.name in options.only]
    counts: Counter[str] = Counter()
    found: list[dict[str, str]] = []
    for case in cases[::step]:
        for kind, why in _apart(case):
            counts[kind] += 1
            if kind not in (_WHOLE, _LEFT_OUT, _NOT_EXPORTED):
                found.append({"case": case.name, "kind": kind, "why": why})
                print(f"{case.name}: {kind}: {why[:300]}", flush=True)
    table([{"samples": kind, "count": counts[kind]} for kind in _KINDS], ["samples", "count"])
    checks: list[Check] = [
        at_most(
            "samples that give something else", counts[_DIFFERS], 0, "condition", any_size=True
        ),
        at_most("samples that fail", counts[_FAILED], 0, "condition", any_size=True),
    ]
    figures = {"counts": dict(counts), "found": found}
    return common.finish("torch_samples", began, figures, checks, options.json)


def _apart(case: Case) -> list[Result]:
    """What became of the samples of a case, in a process of its own: some crash or never end."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        with os.fdopen(writer, "w", encoding="utf-8") as stream:
            for result in _results(case):
                stream.write(json.dumps(result) + "\n")
                stream.flush()
        os._exit(0)
    os.close(writer)
    said, ends = bytearray(), time.time() + _TIME_LIMIT_S
    while time.time() < ends:
        if not select.select([reader], [], [], 1.0)[0]:
            continue
        piece = os.read(reader, 1 << 16)
        if not piece:
            break
        said += piece
    else:
        os.kill(child, signal.SIGKILL)
    os.close(reader)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    results = [(str(kind), str(why)) for kind, why in map(json.loads, said.decode().splitlines())]
    return results if status == 0 else [*results, (_FAILED, f"the process ended with {status}")]


def _results(case: Case) -> Iterator[Result]:
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    try:
        samples = case.samples()
    except Exception as error:  # PyTorch's own: for another version or machine
        yield _LEFT_OUT, repr(error)[:200]
        return
    for sample in samples:
        with tempfile.TemporaryDirectory() as folder:
            yield _result(sample, Path(folder))


def _result(sample: Call, folder: Path) -> Result:
    import torch

    network, inputs = sample()
    try:
        first, second = (_tensors(network(*(x.clone() for x in inputs))) for _ in range(2))
    except Exception as error:
        return _LEFT_OUT, repr(error)[:200]
    if not first or any(t.layout != torch.strided or t.is_quantized for t in [*first, *inputs]):
        return _LEFT_OUT, "no dense tensors"
    if not all(map(_same, first, second)):
        return _LEFT_OUT, "random"
    if any(0 in t.shape for t in [*first, *inputs]):
        return _LEFT_OUT, "an empty tensor"
    shapes = ", ".join(f"{str(x.dtype)[6:]}{list(x.shape)}" for x in inputs)
    path = folder / "network.pt2"
    try:
        torch.export.save(torch.export.export(network, tuple(inputs)), path)
    except Exception as error:
        return _NOT_EXPORTED, repr(error)[:200]
    try:
        return _compared(path, folder, shapes)
    except InternalError as error:
        return _FAILED, f"{shapes}: {error}"
    except TunefleetError as error:
        return _STAYS, f"{shapes}: {error.what}"
    except Exception as error:
        return _FAILED, f"{shapes}: {error!r}"


def _compared(path: Path, folder: Path, shapes: str) -> Result:
    network = load_network(path, ImportRequest(folder, whole=True))
    target = to_tvm(native_target(1))
    compiled = tvm.compile(prepare(network.mod, target), target)
    machine = tvm.relax.VirtualMachine(compiled, tvm.cpu())
    given = machine["main"](*map(tensor_of, network.example_inputs))
    outputs = [given] if hasattr(given, "data_ptr") else list(given)
    wanted = network.reference(network.example_inputs)
    kinds = {_of_output(array_of(o), np.asarray(w)) for o, w in zip(outputs, wanted, strict=True)}
    worst = max(kinds, key=_KINDS.index, default=_WHOLE)
    return worst, shapes


def _of_output(given: Any, wanted: Any) -> str:
    if given.shape != wanted.shape or given.dtype != wanted.dtype:
        return _DIFFERS
    if wanted.dtype.kind not in "fc":
        return _WHOLE if np.array_equal(given, wanted) else _DIFFERS
    known = np.isfinite(wanted)
    most = float(np.abs(wanted[known]).max(initial=0.0))
    close = np.isclose(given, wanted, _RELATIVE, _ABSOLUTE * most, equal_nan=True)
    if close.all():
        return _WHOLE
    return _DIFFERS if (known & ~close).any() else _UNKNOWN


def _same(one: Any, other: Any) -> bool:
    import torch

    try:
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)
    except AssertionError:
        return False
    return True


def _tensors(value: Any) -> list[Any]:
    import torch
    from torch.utils import _pytree as pytree

    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _spread(samples: Iterator[Any], count: int) -> list[Any]:
    seen = [each for each, _ in zip(samples, range(_MOST_SEEN), strict=False)]
    last = len(seen) - 1
    return [seen[i] for i in sorted({round(n * last / max(1, count - 1)) for n in range(count)})]


def _call(function: Callable[..., Any], arguments: Any) -> Call:
    """A module that calls `function` with `arguments` (args and kwargs), of which the tensors are
    its inputs."""
    import torch
    from torch.utils import _pytree as pytree

    def made() -> tuple[Any, Sequence[Any]]:
        leaves, structure = pytree.tree_flatten(arguments)
        places = [n for n, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

        class Network(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                if isinstance(function, torch.nn.Module):
                    self.function = function

            def forward(self, *inputs: Any) -> Any:
                given = list(leaves)
                for place, value in zip(places, inputs, strict=True):
                    given[place] = value
                args, kwargs = pytree.tree_unflatten(given, structure)
                result = function(*args, **kwargs)
                return result if isinstance(result, torch.Tensor) else tuple(_tensors(result))

        return Network().eval(), [leaves[place].detach() for place in places]

    return made


def _operators(count: int) -> Iterator[Case]:
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    for info in op_db:
        types = (torch.float32, torch.int64, torch.bool)
        dtype = next((each for each in types if each in info.dtypes), None)
        if dtype is None:
            continue

        def samples(info: Any = info, dtype: Any = dtype) -> list[Call]:
            made = info.sample_inputs("cpu", dtype, requires_grad=False)
            return [_call(info.op, ((s.input, *s.args), s.kwargs)) for s in _spread(made, count)]

        variant = f".{info.variant_test_name}" if info.variant_test_name else ""
        yield Case(f"{info.name}{variant}", samples)


def _modules(count: int) -> Iterator[Case]:
    import torch
    from torch.testing._internal.common_modules import module_db

    for info in module_db:

        def samples(info: Any = info) -> list[Call]:
            made = info.module_inputs_func(
                info, device="cpu", dtype=torch.float32, requires_grad=False, training=False
            )
            calls = []
            for each in _spread(iter(made), count):
                built = info.module_cls(
                    *each.constructor_input.args, **each.constructor_input.kwargs
                )
                given = each.forward_input
                calls.append(_call(built.eval(), (tuple(given.args), dict(given.kwargs))))
            return calls

        yield Case(info.name, samples)


_PARTS: dict[str, Callable[[int], Iterator[Case]]] = {"operators": _operators, "modules": _modules}


if __name__ == "__main__":
    parser = common.parser(__doc__ or "")
    parser.add_argument("--part", action="append", choices=[*_PARTS], help="instead of both")
    parser.add_argument("--samples", type=int, default=3, help="of each operator and module")
    parser.add_argument("--only", action="append", help="these operators or modules")

    def checked(options: argparse.Namespace) -> int:
        if importlib.util.find_spec("expecttest") is None:
            raise Skip("PyTorch's tests need expecttest: pip install expecttest")
        options.part = options.part or list(_PARTS)
        return main(options)

    common.run(checked, parser)
