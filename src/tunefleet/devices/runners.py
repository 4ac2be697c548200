"""Runs a compiled program over and over: its arguments warm, or its weights as cold as they are in
the network."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunefleet.artifacts.tensors import ALIGNMENT, aligned
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.compiler.toolchain.bfloat16 import BFLOAT16, rounded_array, stored
from tunefleet.compiler.toolchain.programs import nbytes
from tunefleet.core.task import TaskWeights
from tunefleet.core.trial import Built

tvm = load_tvm()

#: Weights smaller than this are measured warm: fetching them takes a microsecond or two.
_COLD_BYTES = 64 * 2**10
#: More than caches hold: beyond it weights come from memory however many others there are.
_NO_CACHE_BYTES = 128 * 2**20
_MOST_COPIES = 256
#: How many random bytes there are before they repeat.
RANDOM_BYTES = 2**20


def runner(built: Built, arguments: Sequence[Any] = ()) -> Any:
    """run(number, repeat, preprocess) -> seconds per run of each repeat, on random numbers unless
    there are `arguments`."""
    library = tvm.runtime.load_module(built.path)
    arguments = arguments or [random_tensor(shape, dtype) for shape, dtype in built.args]

    def run(*, number: int, repeat: int, preprocess: str) -> list[float]:
        evaluator = library.time_evaluator(
            "main", tvm.cpu(), number=number, repeat=repeat, f_preproc=preprocess
        )
        return [float(s) for s in evaluator(*arguments).results]

    return run


def runner_in_network(built: Built, weights: TaskWeights, arguments: Sequence[Any] = ()) -> Any:
    """Like `runner`, with another copy of the weights in each run where warm ones would tell
    something else than the network's do.

    Inputs stay warm, as what the kernel before has just written. The copies together are what the
    whole network's weights are, up to a size that no cache holds.
    """
    copies = copies_of(built, weights)
    if copies < 2:
        return runner(built, arguments)
    function = tvm.runtime.load_module(built.path)["main"]
    following = itertools.cycle(_rotation(built, weights.arguments, copies))
    function(*next(following))

    def run(*, number: int, repeat: int, preprocess: str) -> list[float]:
        seconds = []
        for _ in range(repeat):
            arguments = [next(following) for _ in range(number)]
            started = time.perf_counter()
            for each in arguments:
                function(*each)
            seconds.append((time.perf_counter() - started) / number)
        return seconds

    return run


def copies_of(built: Built, weights: TaskWeights) -> int:
    """How many copies of the weights take turns; 0 where warm ones tell the same."""
    size = sum(nbytes(*built.args[i]) for i in weights.arguments)
    between = min(weights.between, _NO_CACHE_BYTES)
    copies = min(_MOST_COPIES, math.ceil(between / size)) if size else 0
    return 0 if size < _COLD_BYTES or copies < 2 else copies


def placed(built: Built, weights: Sequence[int]) -> tuple[dict[int, int], int]:
    """Where the weights of one copy begin, by argument, and the bytes from one copy to the next."""
    begins = {}
    step = 0
    for i in weights:
        begins[i] = step
        step += -(-nbytes(*built.args[i]) // ALIGNMENT) * ALIGNMENT
    return begins, step


def _rotation(built: Built, weights: Sequence[int], copies: int) -> list[list[Any]]:
    """The arguments of each run: copies of the weights one behind another, the rest shared."""
    begins, step = placed(built, weights)
    # Of few sizes: neighbouring candidates share one.
    whole = 1 << (copies * step - 1).bit_length()
    memory = {i: _memory(built.args[i][1], whole) for i in weights}
    shared = [
        None if i in begins else random_tensor(shape, dtype)
        for i, (shape, dtype) in enumerate(built.args)
    ]
    return [
        [
            _part(memory[i], copy * step + begins[i], *built.args[i]) if i in begins else argument
            for i, argument in enumerate(shared)
        ]
        for copy in range(copies)
    ]


@lru_cache(maxsize=2)
def _memory(dtype: str, size: int) -> NDArray[np.uint8]:
    """At least `size` aligned bytes of random numbers. Candidates come and go; writing them anew
    for each would take as long as measuring it."""
    pattern = random_array((RANDOM_BYTES // nbytes((1,), dtype),), dtype, 0).view(np.uint8)
    memory = aligned((size,), np.dtype(np.uint8))
    memory[:] = np.resize(pattern, size)
    return memory


def _part(memory: NDArray[np.uint8], begin: int, shape: tuple[int, ...], dtype: str) -> Any:
    part = memory[begin : begin + nbytes(shape, dtype)].view(dtype).reshape(shape)
    return tvm.runtime.from_dlpack(part)


def random_array(shape: tuple[int, ...], dtype: str, seed: int) -> Any:
    """Numbers of a normal distribution (of bfloat16 their bits), and integers that may be
    indices."""
    generator = np.random.default_rng(seed)
    if dtype.startswith("float") or dtype == "bfloat16":
        return generator.standard_normal(shape, dtype=np.float32).astype(dtype, copy=False)
    if dtype == stored(BFLOAT16):
        # Bits 0 and 1 would be denormals, of which nothing is left in any product.
        return rounded_array(generator.standard_normal(shape, dtype=np.float32))
    if dtype == "bool":
        return generator.random(shape) < 0.5
    # Indices must stay inside any table that they look up.
    return generator.integers(0, 2, shape, dtype=np.uint8).astype(dtype)


def in_turn(candidates: Sequence[Built], device: Any = None) -> list[list[Any]]:
    """Arguments of programs that never run at once: the first arguments of all are in one piece of
    memory, and so are the second ones, ..., each in its own shape. `device` is TVM's; None for the
    processor."""
    largest: dict[tuple[int, str], int] = {}
    for built in candidates:
        for index, (shape, dtype) in enumerate(built.args):
            key = (index, dtype)
            largest[key] = max(largest.get(key, 0), math.prod(shape))
    pieces = {key: random_tensor((size,), key[1], device) for key, size in largest.items()}
    return [
        [
            pieces[index, dtype]._create_view(shape, dtype)
            for index, (shape, dtype) in enumerate(built.args)
        ]
        for built in candidates
    ]


#: Numbers by type, as many as the largest tensor so far had, random for `RANDOM_BYTES`: shapes of
#: packed weights are as many as there are programs.
_numbers: dict[str, Any] = {}


def random_tensor(shape: tuple[int, ...], dtype: str, device: Any = None) -> Any:
    """A tensor of its own, with numbers that are the same for every tensor of a type."""
    size = math.prod(shape)
    if dtype not in _numbers or _numbers[dtype].size < size:
        drawn = random_array((RANDOM_BYTES // nbytes((1,), dtype),), dtype, 0)
        _numbers[dtype] = np.resize(drawn, size)
    return tvm.runtime.tensor(_numbers[dtype][:size].reshape(shape), device)
