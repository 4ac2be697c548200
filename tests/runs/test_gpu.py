"""From a network to a loaded artifact on a GPU: TVM's own CUDA runtime, on an emulated driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tunefleet.core.stage import StageKind
from tunefleet.store import open_store

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.tvm, pytest.mark.frameworks, pytest.mark.slow]


@pytest.fixture(scope="module")
def seen(emulated_gpu: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Any:
    return on_its_way(emulated_gpu, tmp_path_factory.mktemp("home"), "float32")


def on_its_way(environment: dict[str, str], home: Path, precision: str) -> Any:
    """What `gpu_way.py` saw of a network."""
    ended = run(environment, sys.executable, "-m", "tests.runs.gpu_way", str(home), precision)
    assert ended.returncode == 0, ended.stdout + ended.stderr[-4000:]
    return json.loads((home / "seen.json").read_text())


def run(environment: dict[str, str], *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True
    )


def test_a_network_is_tuned_and_verified(seen: Any) -> None:
    assert (seen["kind"], seen["device"]) == ("cuda", "emulated GPU")
    assert seen["target"].startswith("cuda -arch=sm_80 ")
    assert seen["trials"] == 12
    assert seen["failures"] == {}
    assert seen["verified"]
    assert seen["delivered"] == "tuned"


def test_a_cost_model_of_recorded_gpus_steers_every_task_from_the_first_round(seen: Any) -> None:
    assert seen["learned"] == [["gpu", "float32", 64]]
    scored, measured = seen["scored"]
    assert scored == measured > 1
    assert [note for note in seen["notes"] if "pretrained" in note] == []


def test_it_is_measured_beside_its_framework_which_has_no_gpu_here(seen: Any) -> None:
    assert seen["baselines"] == ["PyTorch on the CPU"]
    assert seen["tuned_ms"] > 0
    assert seen["evaluated"] == ["PyTorch on the CPU"]


def test_what_was_saved_takes_arrays_and_tensors_on_the_gpu(seen: Any) -> None:
    assert seen["finite"]
    assert seen["same_from_gpu"]
    assert seen["taken_by_180_calls"] == 0


@pytest.mark.long
def test_a_network_in_float16_is_tuned_and_verified(
    emulated_gpu: dict[str, str], tmp_path: Path
) -> None:
    seen = on_its_way(emulated_gpu, tmp_path, "fp16")
    assert (seen["network"], seen["trials"]) == ("tiny_cnn-fp16", 4)
    assert seen["failures"] == {}
    assert seen["precisions"]["matmul+add"] == "float16"
    assert seen["verified"]
    assert 1e-6 < seen["difference"] <= seen["tolerance"]
    # The cost model that comes with tunefleet has learned no GPU.
    assert seen["scored"][0] == 0
    assert "without the pretrained model" in "".join(seen["notes"])


def test_what_stays_outside_runs_on_the_cpu_and_its_copies_are_counted(
    emulated_gpu: dict[str, str], tmp_path: Path
) -> None:
    seen = on_its_way(emulated_gpu, tmp_path, "segments")
    assert seen["verified"]
    # A CUDA graph would give what the segments gave in the first call.
    assert seen["differences"] == [0.0, 0.0]
    assert seen["copies"] == {
        "to_cpu": 1, "to_cpu_bytes": 256, "to_gpu": 2, "to_gpu_bytes": 524544,
    }  # fmt: skip
    copied = "1 tensor (256 B) to the CPU and 2 tensors (512.2 KiB) to the GPU"
    assert f"  each call copies {copied}" in seen["lines"]


def test_the_devices_and_the_doctor_name_it(emulated_gpu: dict[str, str], tmp_path: Path) -> None:
    listed = run(
        emulated_gpu, sys.executable, "-m", "tunefleet", "devices", "--json", "-",
        "--home", str(tmp_path),
    )  # fmt: skip
    local, gpu = json.loads(listed.stdout)
    assert (local["name"], gpu["name"]) == ("local", "cuda:0")
    assert gpu["identity"]["name"] == "emulated GPU"
    assert gpu["gpu"]["multiprocessors"] == 1


def test_a_gpu_that_is_not_there_is_refused_in_a_line(
    emulated_gpu: dict[str, str], tmp_path: Path
) -> None:
    ended = run(
        emulated_gpu, sys.executable, "-m", "tunefleet", "tune", "zoo:tiny_cnn",
        "--device", "cuda:1", "--home", str(tmp_path), "--quiet",
    )  # fmt: skip
    assert ended.returncode == 2
    assert "this machine has no GPU cuda:1; there are: cuda:0 (emulated GPU)" in ended.stderr


def test_code_for_a_processor_does_not_run_on_it(
    emulated_gpu: dict[str, str], tmp_path: Path
) -> None:
    ended = run(
        emulated_gpu, sys.executable, "-m", "tunefleet", "tune", "zoo:tiny_cnn", "--target",
        "haswell", "--device", "cuda:0", "--home", str(tmp_path), "--quiet",
    )  # fmt: skip
    assert ended.returncode == 2
    assert "is for a processor, and emulated GPU is a GPU" in ended.stderr


def test_no_network_is_divided_over_it(emulated_gpu: dict[str, str], tmp_path: Path) -> None:
    ended = run(
        emulated_gpu, sys.executable, "-m", "tunefleet", "place", "zoo:tiny_cnn",
        "--device", "local", "--device", "cuda:0", "--home", str(tmp_path),
    )  # fmt: skip
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert line.startswith("error: a network is divided over processors, and cuda:0 is a GPU; tune")


@pytest.mark.long
def test_one_command_tunes_for_a_processor_a_gpu_and_a_board(
    emulated_gpu: dict[str, str], tmp_path: Path
) -> None:
    ended = run(emulated_gpu, sys.executable, "-m", "tests.runs.three_kinds", str(tmp_path))
    assert ended.returncode == 0, ended.stdout + ended.stderr[-4000:]
    seen = json.loads((tmp_path / "seen.json").read_text())
    assert [row["error"] for row in seen] == ["", "", ""]
    assert [row["device"] for row in seen] == ["local", "cuda:0", "board"]
    assert [row["measured_on"] for row in seen] == [["device"], ["cuda:0"], ["board"]]
    assert [row["name"] for row in seen][1:] == ["emulated GPU", "emulated board"]
    assert seen[0]["name"] != "emulated board"
    assert [row["trials"] for row in seen] == [4, 4, 4]
    assert all(row["verified"] for row in seen)
    assert [row["target"].split()[0] for row in seen] == ["llvm", "cuda", "llvm"]
    with closing(open_store(tmp_path)) as store:
        spans = [s for s in store.work.stages_between(0.0, 1e12) if s.key.kind is StageKind.PROFILE]
    here, gpu = ([s for s in spans if s.resource_id == name] for name in ("device", "cuda:0"))
    # The GPU's programs are launched from the cores that the processor is measured on.
    assert all(a.ended_at <= b.started_at or b.ended_at <= a.started_at for a in here for b in gpu)


def test_what_disturbs_it_is_warned_of(emulated_gpu: dict[str, str]) -> None:
    for said, more in (
        ("2 other processes on cuda:0", {"EMULATED_GPU_OTHERS": "2"}),
        ("its temperature holds the clocks of cuda:0 down", {"EMULATED_GPU_HELD_DOWN": "0x20"}),
    ):
        ended = run(emulated_gpu | more, sys.executable, "-m", "tests.runs.gpu_doctor")
        assert said in ended.stdout, ended.stderr
