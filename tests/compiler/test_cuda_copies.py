"""Programs that fetch ahead: a GPU copies on its own while it computes, and each thread waits for
what it needs."""

from __future__ import annotations

import json
import re
import subprocess

import numpy as np
import pytest

pytestmark = pytest.mark.tvm

from tests.compiler.gpu_products import (  # noqa: E402
    GPU,
    HALF,
    gpu,
    product_and_sum,
    small,
    traces_by,
)
from tests.compiler.gpu_tasks import programs_of  # noqa: E402
from tests.compiler.products import saved_program  # noqa: E402
from tests.emulation.library import Library, need_compiler, source_of  # noqa: E402
from tests.emulation.rewriting import COMMIT, COPY, WAIT  # noqa: E402

from tunefleet.compiler.code.replay import replay  # noqa: E402
from tunefleet.compiler.space.intrinsics import WARP_PRODUCTS  # noqa: E402
from tunefleet.compiler.space.opening import task_space  # noqa: E402
from tunefleet.compiler.space.spaces import postprocessors  # noqa: E402
from tunefleet.compiler.toolchain import load_tvm  # noqa: E402
from tunefleet.compiler.toolchain.nvcc import find_nvcc, need_nvcc  # noqa: E402
from tunefleet.compiler.toolchain.programs import (  # noqa: E402
    COPIED_STAGES,
    load_program,
    trace_text,
)

tvm = load_tvm()
te = tvm.te

BYTES = next(i for i in WARP_PRODUCTS if i.data == "int8" and i.transposed)


def ahead(program, count, target=GPU):
    """Random programs whose steps overlap, as traces."""
    space = task_space(program, target).decisions
    rng = np.random.default_rng(0)
    return [
        trace
        for number, sketch in enumerate(space.sketches)
        if any(i[0] == "Annotate" and i[2][0] == COPIED_STAGES for i in sketch.instructions)
        for trace in space.traces(space.population(number, sketch.sample(count, rng)).distinct())
    ]


def product(rows, columns, depth):
    """Of floats, and what it is given."""
    a, b = te.placeholder((rows, depth), name="A"), te.placeholder((depth, columns), name="B")
    k = te.reduce_axis((0, depth), "k")
    sums = te.compute((rows, columns), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="sums")
    arrays = [small((rows, depth), "float32", 0), small((depth, columns), "float32", 1)]
    return saved_program([a, b, sums]), arrays


def filtered(width, window):
    """Each window of a row begins where it likes, next to the one before."""
    x, w = te.placeholder((8, width), name="x"), te.placeholder((8, 8, window), name="w")
    c, d = te.reduce_axis((0, 8), "c"), te.reduce_axis((0, window), "d")
    sums = te.compute(
        (8, width - window + 1), lambda o, i: te.sum(x[c, i + d] * w[o, c, d], axis=[c, d]), "sums"
    )
    arrays = [small((8, width), "float32", 0), small((8, 8, window), "float32", 1)]
    taken = np.lib.stride_tricks.sliding_window_view(arrays[0], window, axis=1)
    return saved_program([x, w, sums]), arrays, np.einsum("cid,ocd->oi", taken, arrays[1])


def ptx_of(source, folder):
    code = folder / "code.cu"
    code.write_text(source)
    command = [need_nvcc(), "--ptx", f"-arch={GPU.arch}", "-o", "/dev/stdout", str(code)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("of", ["floats", "halves", "bytes"])
def test_code_of_programs_that_fetch_ahead_copies_and_waits(of, tmp_path):
    if find_nvcc() is None:
        pytest.skip("no nvcc")
    if of == "floats":
        trace, *_ = ahead(program := product(64, 48, 32)[0], 1)
    else:
        intrinsic = HALF if of == "halves" else BYTES
        program = product_and_sum(64, 64, 96, intrinsic)
        trace, *_ = set(traces_by(program, intrinsic.name, 1)) & set(ahead(program, 1))
    ptx = ptx_of(source_of(program, GPU, trace), tmp_path)
    assert re.search(r"cp\.async\.c[ag]\.shared\.global", ptx)
    assert "cp.async.commit_group" in ptx
    assert {"0"} < set(re.findall(r"cp\.async\.wait_group\s+(\d+)", ptx))


@pytest.mark.parametrize("intrinsic", [HALF, BYTES], ids=lambda i: i.name)
def test_every_program_by_tensor_cores_that_fetches_ahead_copies(intrinsic):
    program = product_and_sum(64, 64, 96, intrinsic)
    traces = [t for t in ahead(program, 3) if t in traces_by(program, "", 3)]
    assert traces
    for trace in traces:
        assert COPY.search(source_of(program, GPU, trace))


def test_zeros_in_place_of_bytes_are_nothing_that_is_copied():
    """TVM has a GPU put floats alone there: such a product is not fetched ahead."""
    program = product_and_sum(31, 30, 40, BYTES)
    assert traces_by(program, "", 1)
    assert not set(traces_by(program, "", 1)) & set(ahead(program, 1))


def test_a_gpu_that_does_not_copy_on_its_own_has_no_such_programs():
    older = gpu("sm_75")
    for program in (product(64, 48, 32)[0], product_and_sum(64, 64, 96, HALF)):
        assert not ahead(program, 1, older)
        space = task_space(program, older).decisions
        for trace in space.traces(space.sample(4, np.random.default_rng(0))):
            assert "cp.async" not in source_of(program, older, trace)


@pytest.fixture(scope="module")
def products():
    """Of floats, and by tensor cores."""
    program, arrays = product(32, 48, 64)
    trace, *_ = ahead(program, 1)
    modules = [replay(load_program(program), GPU, trace).mod]
    halves = product_and_sum(64, 64, 96, HALF)
    given = [small((64, 96), "float16", 0), small((96, 64), "float16", 1)]
    given.append(small((64,), "float32", 2))
    trace = next(t for t in ahead(halves, 1) if t in traces_by(halves, "", 1))
    modules.append(replay(load_program(halves), GPU, trace).mod)
    return {f"p{n}": module for n, module in enumerate(modules)}, [arrays, given]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda source: WAIT.sub("", source), "waited for"),
        (lambda source: WAIT.sub(lambda m: m[0].replace(m[1], str(int(m[1]) + 1)), source),
         "waited for"),
        (lambda source: COMMIT.sub("", source), "waited for"),
        (lambda source: source.replace("__syncthreads();", ""), "another thread|waited for"),
    ],
    ids=["no wait", "too few", "no group", "no barrier"],
)  # fmt: skip
def test_what_is_read_too_early_is_seen(change, told, products, tmp_path):
    need_compiler()
    modules, arrays = products
    library = Library(modules, GPU, tmp_path, change)
    for name, given in zip(modules, arrays, strict=True):
        with pytest.raises(AssertionError, match=told):
            library.run(name, given)


@pytest.mark.parametrize("task", ["conv", "matvec"])
def test_random_programs_that_fetch_ahead_are_right(task, tmp_path):
    """Of a vector times a matrix TVM takes some fetches for copies of chips other than GPUs."""
    from tests.compiler.test_cuda_programs import given_for, plain_result

    need_compiler()
    (program,) = programs_of(task, GPU)
    arrays, made = given_for(program)
    modules = {
        f"p{n}": replay(load_program(program), GPU, t).mod for n, t in enumerate(ahead(program, 2))
    }
    expected = plain_result(program, arrays, made, tmp_path)
    library = Library(modules, GPU, tmp_path)
    assert all(COPY.search(source) for source in library.sources.values())
    for name in modules:
        np.testing.assert_allclose(library.run(name, arrays), expected, rtol=2e-4, atol=2e-5)


def test_vectors_that_begin_anywhere_are_not_copied(tmp_path):
    """TVM copies them all the same, which is an error of a GPU."""
    need_compiler()
    program, arrays, expected = filtered(34, 3)
    task = load_program(program)
    modules = {f"p{n}": replay(task, GPU, t).mod for n, t in enumerate(ahead(program, 3))}
    library = Library(modules, GPU, tmp_path)
    for name in modules:
        np.testing.assert_array_equal(expected, library.run(name, arrays))


def test_so_it_is_with_programs_that_others_postprocessed(tmp_path):
    """Whose vectors are as they were drawn."""
    need_compiler()
    program, arrays, expected = filtered(34, 3)
    traces = [_postprocessed(program, trace) for trace in ahead(program, 3)]
    modules = {
        f"p{n}": replay(load_program(program), GPU, trace).mod
        for n, trace in enumerate(filter(None, traces))
    }
    library = Library(modules, GPU, tmp_path)
    copies = {bool(COPY.search(source)) for source in library.sources.values()}
    assert copies == {False, True}
    for name in modules:
        np.testing.assert_array_equal(expected, library.run(name, arrays))


def _postprocessed(program, trace):
    """The trace of MetaSchedule alone, "" where it rejects the program."""
    schedule = tvm.s_tir.Schedule(load_program(program))
    tvm.s_tir.schedule.Trace.apply_json_to_schedule(json.loads(trace), schedule)
    schedule.enter_postproc()
    taken = all(each.apply(schedule) for each in postprocessors(GPU, trace))
    return trace_text(schedule.trace) if taken else ""
