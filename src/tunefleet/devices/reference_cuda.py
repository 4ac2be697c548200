"""Fixed kernels of GPUs: one that tells whether the GPU is as fast as a moment ago, and the most
float32 operations that it reaches."""

from __future__ import annotations

from typing import Any

from tunefleet.compiler.toolchain import load_tvm
from tunefleet.core.gpu import Gpu
from tunefleet.core.target import Target
from tunefleet.core.trial import Built
from tunefleet.devices.reference import built_kernel

tvm = load_tvm()

#: Threads of a block, and numbers that each of them computes by independent sums: enough to hide
#: the latency of a multiply-add with one block per multiprocessor.
_THREADS, _CHAINS = 1024, 8
#: Multiply-adds that a multiprocessor does in a cycle, at most (compute capability 7.0 and later).
_PER_CYCLE = 128
#: How long the reference kernel takes about, and a kernel for the peak.
_REFERENCE_S, _PEAK_S = 1e-4, 2e-3

_PROGRAM = """
@T.prim_func(s_tir=True)
def main(factors: T.Buffer(({chains},), "float32"), out: T.Buffer(({size},), "float32")):
    for block in T.thread_binding({blocks}, thread="blockIdx.x"):
        for thread in T.thread_binding({threads}, thread="threadIdx.x"):
            with T.sblock("chains"):
                b = T.axis.spatial({blocks}, block)
                t = T.axis.spatial({threads}, thread)
                T.reads(factors[0:{chains}])
                T.writes(out[{first} : {first} + {chains}])
                x = T.sblock_alloc_buffer(({chains},), scope="local")
                for c in T.unroll({chains}):
                    x[c] = factors[c]
                for step in range({steps}):
                    for c in T.unroll({chains}):
                        x[c] = x[c] * factors[c] + factors[c]
                for c in T.unroll({chains}):
                    out[{first} + c] = x[c]
"""


def reference_kernel(target: Target, gpu: Gpu, directory: str) -> Built:
    """Chains of multiply-adds on every multiprocessor, 0.1 ms at its nominal clock."""
    _, module = _chains(gpu, _REFERENCE_S)
    return built_kernel(module, target, "reference", directory)


def peak_kernels(target: Target, gpu: Gpu, directory: str) -> list[tuple[float, Built]]:
    """The same for longer, with its floating-point operations."""
    flops, module = _chains(gpu, _PEAK_S)
    return [(flops, built_kernel(module, target, "peak", directory))]


def _chains(gpu: Gpu, seconds: float) -> tuple[float, Any]:
    cycles = seconds * gpu.clock_khz * 1e3
    steps = max(1, round(cycles * _PER_CYCLE / (_THREADS * _CHAINS)))
    blocks, per_block = gpu.multiprocessors, _THREADS * _CHAINS
    text = _PROGRAM.format(
        chains=_CHAINS,
        blocks=blocks,
        threads=_THREADS,
        first=f"b * {per_block} + t * {_CHAINS}",
        size=blocks * per_block,
        steps=steps,
    )
    program = tvm.script.from_source(text, {"T": tvm.script.tirx})
    return 2.0 * steps * blocks * per_block, tvm.IRModule({"main": program})
