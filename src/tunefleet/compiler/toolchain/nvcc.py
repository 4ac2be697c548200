"""Finds CUDA's compiler and compiles TVM's CUDA source to machine code (cubins).

It needs no GPU. A toolkit on the PATH is preferred, then the Python package `nvidia-cuda-nvcc`
(extra `cuda`).
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path

from tunefleet.errors import ForeignError, SetupError
from tunefleet.system.scratch import scratch_folder

#: Its path in the Python packages of CUDA 13, below `nvidia`.
_PACKAGED = "cu13/bin/nvcc"

#: Without `--use_fast_math`: its tanh has an error of 5e-4, and outputs are compared with the
#: source framework.
_OPTIONS = ("--cubin", "-O3", "--expt-relaxed-constexpr")


class CudaError(ForeignError):
    """nvcc rejected a program; the text is its message in one line."""


@lru_cache(maxsize=1)
def find_nvcc() -> str | None:
    """The path of nvcc, None if it is not installed."""
    on_path = shutil.which("nvcc")
    package = importlib.util.find_spec("nvidia")
    folders = (package.submodule_search_locations if package else None) or ()
    packaged = (Path(folder) / _PACKAGED for folder in folders)
    return on_path or next((str(path) for path in packaged if path.is_file()), None)


def need_nvcc() -> str:
    path = find_nvcc()
    if path is None:
        raise SetupError(
            "code for CUDA needs its compiler, nvcc, which is not installed",
            cure="pip install 'tunefleet[cuda]', or put nvcc on the PATH",
        )
    return path


@lru_cache(maxsize=1)
def nvcc_version() -> str:
    """`13.0.88`, say. Raises SetupError where there is no nvcc, or one that does not run."""
    try:
        version_text = subprocess.run(
            [need_nvcc(), "--version"], capture_output=True, text=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise SetupError(f"nvcc does not run: {error}", cure="reinstall CUDA's compiler") from error
    match = re.search(r"\bV(\d+\.\d+\.\d+)", version_text)
    return match.group(1) if match else "unknown"


def compile_cubin(source: str, arch: str) -> bytes:
    """Machine code of a GPU's architecture (`sm_80`) from CUDA source; about a second.

    Raises CudaError for source that nvcc refuses, SetupError where there is no nvcc.
    """
    nvcc = need_nvcc()
    with scratch_folder("nvcc") as folder:
        code, made = Path(folder) / "kernels.cu", Path(folder) / "kernels.cubin"
        code.write_text(source, encoding="utf-8")
        command = [nvcc, *_OPTIONS, f"-arch={arch}", "-o", str(made), str(code)]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace")
        if done.returncode:
            raise CudaError(_cause(done.stderr + done.stdout))
        return made.read_bytes()


def _cause(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"\berror\b|\bfatal\b", line)]
    return [*errors, *lines, "nvcc failed"][0][:300]
