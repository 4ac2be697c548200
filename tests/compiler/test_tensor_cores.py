"""Products by tensor cores: compiled to machine code that has their instructions, and the code of
each thread executed on the CPU (`tests/emulation/library.py` says what that shows)."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess

import numpy as np
import pytest

pytestmark = pytest.mark.tvm

from tests.compiler.gpu_products import (  # noqa: E402
    GPU,
    HALF,
    batched,
    product_and_sum,
    small,
    traces_by,
)
from tests.compiler.products import saved_program  # noqa: E402
from tests.emulation.library import (  # noqa: E402
    Library,
    need_compiler,
    results_of,
    source_of,
)

from tunefleet.compiler.code.build import build_candidate, build_default  # noqa: E402
from tunefleet.compiler.code.replay import replay  # noqa: E402
from tunefleet.compiler.space.intrinsics import WARP_PRODUCTS  # noqa: E402
from tunefleet.compiler.space.opening import has_tensorised  # noqa: E402
from tunefleet.compiler.space.tensor_cores import CudaTensorCores  # noqa: E402
from tunefleet.compiler.toolchain import load_tvm  # noqa: E402
from tunefleet.compiler.toolchain.host import native_target  # noqa: E402
from tunefleet.compiler.toolchain.nvcc import compile_cubin, find_nvcc, need_nvcc  # noqa: E402
from tunefleet.compiler.toolchain.programs import load_program  # noqa: E402
from tunefleet.core.trial import Built  # noqa: E402

tvm = load_tvm()
te, topi = tvm.te, tvm.topi


ALL = pytest.mark.parametrize("intrinsic", WARP_PRODUCTS, ids=lambda i: i.name)


def instructions_in(source, folder):
    """What a GPU's machine code multiplies by; where nothing takes that apart, what PTX says."""
    nvdisasm = _nvdisasm()
    if nvdisasm is not None:
        code = folder / "code.cubin"
        code.write_bytes(compile_cubin(source, GPU.arch))
        return set(re.findall(r"\b([A-Z]MMA)\.", _told(nvdisasm, "-c", str(code))))
    code = folder / "code.cu"
    code.write_text(source)
    text = _told(need_nvcc(), "--ptx", f"-arch={GPU.arch}", "-o", "/dev/stdout", str(code))
    return {"IMMA" if ".s8" in each else "HMMA" for each in re.findall(r"wmma\.mma\.sync\S+", text)}


def _nvdisasm():
    """Of a toolkit, or of the Python package `nvidia-cuda-nvdisasm`."""
    package = importlib.util.find_spec("nvidia")
    inside = (package.submodule_search_locations if package else None) or ()
    folders = [f"{folder}/cu13/bin" for folder in inside]
    return shutil.which("nvdisasm") or shutil.which("nvdisasm", path=os.pathsep.join(folders))


def _told(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def given_for(intrinsic, rows, columns, depth):
    weights = (columns, depth) if intrinsic.transposed else (depth, columns)
    return [
        small((rows, depth), intrinsic.data, 0),
        small(weights, intrinsic.data, 1),
        small((columns,), intrinsic.accumulator, 2),
    ]


def plain_result(program, arrays, folder):
    """Of the task's own loops, on this processor."""
    built = build_default(program, native_target(1), "plain", str(folder))
    assert isinstance(built, Built)
    shape, dtype = built.args[-1]
    result = tvm.runtime.tensor(np.zeros(shape, dtype))
    tvm.runtime.load_module(built.path)["main"](*map(tvm.runtime.tensor, arrays), result)
    return result.numpy()


def assert_computed(program, arrays, folder, count=1, name=""):
    """Programs by tensor cores give the very results of the task's own loops."""
    expected = plain_result(program, arrays, folder)
    traces = traces_by(program, name, count)
    assert traces
    task = load_program(program)
    modules = {f"p{n}": replay(task, GPU, trace).mod for n, trace in enumerate(traces)}
    library = Library(modules, GPU, folder)
    for each in modules:
        np.testing.assert_array_equal(expected, library.run(each, arrays))


@ALL
def test_products_become_tensor_core_code(intrinsic, tmp_path):
    if find_nvcc() is None:
        pytest.skip("no nvcc")
    expected = {"IMMA" if intrinsic.data == "int8" else "HMMA"}
    # It divides into no fragments. What does is a part of that, and is compiled for one.
    sizes = [(31, 30, 40)] + [(64, 64, 64)] * (intrinsic == HALF)
    for rows, columns, depth in sizes:
        program = product_and_sum(rows, columns, depth, intrinsic)
        trace, *_ = traces_by(program, intrinsic.name, 1)
        assert expected == instructions_in(source_of(program, GPU, trace), tmp_path)


@ALL
def test_threads_compute_the_product(intrinsic, tmp_path):
    need_compiler()
    for rows, columns, depth in ((64, 64, 48), (31, 30, 40)):
        program = product_and_sum(rows, columns, depth, intrinsic)
        arrays = given_for(intrinsic, rows, columns, depth)
        assert_computed(program, arrays, tmp_path, name=intrinsic.name)


def test_a_barrier_that_is_missing_shows(tmp_path):
    """What runs the code can find it wrong."""
    need_compiler()
    program = product_and_sum(64, 64, 64, HALF)
    arrays = given_for(HALF, 64, 64, 64)
    trace = next(t for t in traces_by(program, HALF.name, 32) if _has_warps(program, t))
    with pytest.raises(AssertionError, match="another thread"):
        results_of(
            program, GPU, trace, arrays, tmp_path, lambda s: s.replace("__syncthreads();", "")
        )


def _has_warps(program, trace):
    """Several in a block, each of which reads what others fetched."""
    return "threadIdx.y" in source_of(program, GPU, trace)


@pytest.mark.parametrize(
    ("size", "inputs", "outputs", "window", "stride"),
    [(14, 24, 40, 3, 1), (15, 16, 32, 3, 2), (8, 32, 24, 1, 1), (9, 3, 16, 3, 1)],
)
@pytest.mark.parametrize("data", ["float16", "int8"])
def test_convolutions_are_products_of_matrices(
    data, size, inputs, outputs, window, stride, tmp_path
):
    need_compiler()
    sums = "int32" if data == "int8" else "float32"
    x = te.placeholder((2, size, size, inputs), data, "x")
    w = te.placeholder((window, window, inputs, outputs), data, "w")
    bias = te.placeholder((outputs,), sums, "bias")
    border = window // 2
    # A zero point, of quantised data.
    widths = [0, border, border, 0]
    padded = topi.nn.pad(x, widths, widths, tvm.tirx.const(2, data), name="pad_temp")
    ry, rx = te.reduce_axis((0, window), "ry"), te.reduce_axis((0, window), "rx")
    rc = te.reduce_axis((0, inputs), "rc")
    across = (size + 2 * border - window) // stride + 1

    def pixel(n, i, j, o):
        one = padded[n, i * stride + ry, j * stride + rx, rc].astype(sums)
        return te.sum(one * w[ry, rx, rc, o].astype(sums), axis=[ry, rx, rc])

    product = te.compute((2, across, across, outputs), pixel, name="conv2d")
    most = tvm.tirx.const(0, sums)
    done = te.compute(
        product.shape, lambda *i: tvm.tirx.max(product(*i) + bias[i[-1]], most), name="relu"
    )
    program = saved_program([x, w, bias, done])
    arrays = [
        small([int(d) for d in a.shape], dtype, seed)
        for seed, (a, dtype) in enumerate(((x, data), (w, data), (bias, sums)))
    ]
    assert_computed(program, arrays, tmp_path)


@pytest.mark.parametrize("transposed", [False, True])
def test_each_of_a_batch_has_weights_of_its_own(transposed, tmp_path):
    need_compiler()
    program, arrays = batched(30, 48, 40, transposed)
    assert_computed(program, arrays, tmp_path)


def kernels_of(program, trace):
    # Each is declared and defined.
    return source_of(program, GPU, trace).count("__launch_bounds__") // 2


def test_results_may_be_written_in_another_order(tmp_path):
    """As the heads of attention are: [rows, heads * width] become [heads, rows, width]."""
    need_compiler()
    a, b = te.placeholder((30, 40), "float16", "A"), te.placeholder((40, 64), "float16", "B")
    k = te.reduce_axis((0, 40), "k")

    def cell(i, j):
        return te.sum(a[i, k].astype("float32") * b[k, j].astype("float32"), axis=k)

    product = te.compute((30, 64), cell, name="product")
    heads = te.compute((4, 30, 16), lambda h, i, d: product[i, h * 16 + d] * 2.0, name="heads")
    program = saved_program([a, b, heads])
    arrays = [small((30, 40), "float16", 0), small((40, 64), "float16", 1)]
    assert {1} == {kernels_of(program, trace) for trace in traces_by(program, "", 1)}
    assert_computed(program, arrays, tmp_path)


def _some_rows(product):
    """Of all pictures' rows, which are those of one matrix, some are not wanted."""
    return te.compute((3, 29, 48), lambda *i: product(*i) + 1.0, name="some")


def _side_by_side(product):
    return te.compute((32, 144), lambda i, c: product[c // 48, i, c % 48] * 2.0, name="heads")


@pytest.mark.parametrize("after", [_some_rows, _side_by_side])
def test_what_tiles_cannot_finish_is_a_kernel_of_its_own(after, tmp_path):
    need_compiler()
    a, b = te.placeholder((3, 32, 40), "float16", "A"), te.placeholder((40, 48), "float16", "B")
    k = te.reduce_axis((0, 40), "k")

    def cell(n, i, j):
        return te.sum(a[n, i, k].astype("float32") * b[k, j].astype("float32"), axis=k)

    product = te.compute((3, 32, 48), cell, name="product")
    program = saved_program([a, b, after(product)])
    arrays = [small((3, 32, 40), "float16", 0), small((40, 48), "float16", 1)]
    assert {2} == {kernels_of(program, trace) for trace in traces_by(program, "", 1)}
    assert_computed(program, arrays, tmp_path)


def test_a_residual_is_added_and_bytes_are_made_where_sums_are(tmp_path):
    need_compiler()
    a, b = te.placeholder((48, 64), "int8", "A"), te.placeholder((64, 32), "int8", "B")
    c, scale = te.placeholder((48, 32), "int8", "C"), te.placeholder((32,), "float32", "scale")
    k = te.reduce_axis((0, 64), "k")

    def cell(i, j):
        return te.sum(a[i, k].astype("int32") * b[k, j].astype("int32"), axis=k)

    product = te.compute((48, 32), cell, name="product")
    wide = te.compute((48, 32), lambda i, j: c[i, j].astype("int32"), name="wide")
    total = te.compute((48, 32), lambda i, j: product[i, j] + wide[i, j], name="total")
    real = te.compute((48, 32), lambda i, j: total[i, j].astype("float32") * scale[j], name="real")
    most = te.compute((48, 32), lambda i, j: tvm.tirx.min(real[i, j], 127.0), name="most")
    least = te.compute((48, 32), lambda i, j: tvm.tirx.max(most[i, j], -128.0), name="least")
    done = te.compute((48, 32), lambda i, j: least[i, j].astype("int8"), name="done")
    arrays = [small((48, 64), "int8", 0), small((64, 32), "int8", 1), small((48, 32), "int8", 2)]
    arrays.append(np.full(32, 0.5, "float32"))
    assert_computed(saved_program([a, b, c, scale, done]), arrays, tmp_path, count=2)


def test_bytes_of_an_imported_network_are_multiplied_by_tensor_cores(tmp_path):
    from tunefleet.stages.importing import import_network

    if find_nvcc() is None:
        pytest.skip("no nvcc")
    network = import_network("zoo:tiny_cnn?precision=int8", GPU)
    fitting = [w.task.program for w in network.tasks if has_tensorised(w.task.program, GPU)]
    assert len(fitting) == 3
    for program in fitting:
        (trace, *_) = traces_by(program, "", 1)
        built = build_candidate(program, GPU, "x", trace, str(tmp_path))
        assert isinstance(built, Built)
        assert CudaTensorCores().made(trace)
        assert {"IMMA"} == instructions_in(source_of(program, GPU, trace), tmp_path)
