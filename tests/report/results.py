"""Made-up results of schema tunefleet-result/3."""

from __future__ import annotations

import random
from typing import Any

from tunefleet.core.result import RunResult
from tunefleet.report.result import read_result

OPERATORS = ("conv2d+add+maximum", "conv2d+add", "matmul+add+gelu", "max_pool2d", "softmax")


def interval(median: float, spread: float = 0.02) -> dict[str, float]:
    return {"median": median, "low": median * (1 - spread), "high": median * (1 + spread)}


def a_task(index: int, share: float, generator: random.Random) -> dict[str, Any]:
    gflops = generator.uniform(5, 190)
    return {
        "task_id": f"{index:032x}",
        "name": OPERATORS[index % len(OPERATORS)],
        "shapes": f"1x{7 + index}x{7 + index}x64 3x3x64x{64 + index} -> 1x{7 + index}x{7 + index}",
        "weight": 1 + index % 6,
        "flops": 2.3e8 / (1 + index),
        "trials": generator.randrange(16, 80),
        "failed": generator.choice([0, 0, 1, 3]),
        "latency_us": 900.0 / (1 + index),
        "gflops": gflops,
        "peak_share": gflops / 218.0,
        "network_share": share,
        "source": generator.choice(["tuned", "tuned", "reused", "default"]),
        "intrinsic": "vnni.16x4" if index == 1 else "",
    }


def a_curve(rounds: int, start_ms: float, end_ms: float) -> list[dict[str, Any]]:
    generator = random.Random(1)
    points: list[dict[str, Any]] = []
    latency, seconds = start_ms, 0.0
    for number in range(rounds):
        seconds += generator.uniform(3, 9)
        if number > rounds // 6:
            latency -= (latency - end_ms) * generator.choice([0, 0, 0.05, 0.12])
        known = latency if number >= rounds // 6 else None
        points.append({"trials": 16 * (number + 1), "wall_s": seconds, "latency_ms": known})
    return points


def a_run(tasks: int = 12, rounds: int = 60, start_ms: float = 9.5) -> RunResult:
    """A complete result with so many tasks."""
    return read_result(a_result(tasks, rounds, start_ms), "artifact.json")


def a_result(tasks: int = 12, rounds: int = 60, start_ms: float = 9.5) -> dict[str, Any]:
    """A complete result with so many tasks, as JSON of schema 3."""
    generator = random.Random(0)
    weights = [1 / (1 + i) for i in range(tasks)]
    return {
        "schema": "tunefleet-result/3",
        "run": "a" * 32,
        "job": "b" * 32,
        "resumed": False,
        "network": {
            "name": "mobilenet_v2",
            "source": "zoo",
            "digest": "c" * 64,
            "inputs": ["input: float32[1, 3, 224, 224]"],
            "outputs": ["output: float32[1, 1000]"],
        },
        "target": "llvm -mcpu=znver4 -mattr=-avx512f,-gfni -num-cores=2",
        "threads": 2,
        "device": {
            "kind": "cpu",
            "name": "AMD EPYC 9B14",
            "isa": ["avx2", "bmi2", "fma", "sha"],
            "cores": 2,
            "caches": [["L1", 32768], ["L2", 1048576], ["L3", 33554432]],
            "memory_gib": 32,
            "key": "",
        },
        "toolchain": {
            "tunefleet": "0.1.0",
            "tvm": "0.27.0.post1",
            "llvm": "20.1.8",
            "measure_version": 1,
        },
        "budget": {"trials": rounds * 16, "seconds": None, "target_latency_s": None},
        "stopped": f"all {rounds * 16} trials are done",
        "trials": rounds * 16,
        "reused": 3,
        "failures": {"run_timeout": 3, "build_error": 11, "wrong_answer": 1},
        "wall_s": 424.6,
        "wall": {
            "import": 8.1,
            "check": 3.0,
            "select": 80.1,
            "build": 170.2,
            "profile": 120.0,
            "update": 9.0,
            "build finalists": 8.0,
            "select winners": 12.0,
            "compile": 8.0,
            "verify": 1.5,
            "publish": 0.5,
            "measure": 4.0,
            "other": 0.2,
        },
        "tuned_ms": interval(4.12, 0.015),
        "speedup": interval(1.21, 0.025),
        "baselines": [
            {
                "name": "PyTorch",
                "kind": "source",
                "latency_ms": interval(4.99, 0.03),
                "speedup": interval(1.21, 0.025),
            },
            {
                "name": "untuned TVM",
                "kind": "untuned",
                "latency_ms": interval(61.3, 0.03),
                "speedup": interval(14.9, 0.025),
            },
        ],
        "warnings": [],
        "outside": None,
        "delivered": "tuned",
        "verified": True,
        "difference": {"plain": 1.1e-6, "tuned": 2.4e-6},
        "peak_gflops": 218.0,
        "kernels_ms": 3.95,
        "tasks": [a_task(i, w / sum(weights), generator) for i, w in enumerate(weights)],
        "curve": a_curve(rounds, start_ms, 4.0),
        "artifact": "/home/user/.tunefleet/artifacts/" + "a" * 32,
        "report": "/home/user/.tunefleet/artifacts/" + "a" * 32 + "/report.html",
    }
