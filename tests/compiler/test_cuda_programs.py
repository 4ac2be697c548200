"""Random programs of the CUDA space, each thread run on the CPU (`tests/emulation/library.py` says
what that shows).

`TUNEFLEET_PROGRAMS=8 pytest tests/compiler/test_cuda_programs.py` runs so many of every sketch of
every task; otherwise it is one of some sketches. With `-s` it tells how many that were, and how
many of them copied while they computed.
"""

from __future__ import annotations

import os
import re

import numpy as np
import pytest

pytestmark = pytest.mark.tvm

from tests.compiler.gpu_products import GPU, product_and_sum, tensor_sketches  # noqa: E402
from tests.compiler.gpu_tasks import NAMES, programs_of  # noqa: E402
from tests.emulation.library import Library, need_compiler, source_of_module  # noqa: E402
from tests.emulation.rewriting import COPY  # noqa: E402

from tunefleet.compiler.code.build import build_default  # noqa: E402
from tunefleet.compiler.code.replay import replay  # noqa: E402
from tunefleet.compiler.space.intrinsics import WARP_PRODUCTS  # noqa: E402
from tunefleet.compiler.space.opening import task_space  # noqa: E402
from tunefleet.compiler.toolchain import load_tvm  # noqa: E402
from tunefleet.compiler.toolchain.host import native_target, parse_target  # noqa: E402
from tunefleet.compiler.toolchain.nvcc import compile_cubin, find_nvcc  # noqa: E402
from tunefleet.compiler.toolchain.programs import load_program  # noqa: E402
from tunefleet.core.trial import Built  # noqa: E402

tvm = load_tvm()

_COUNT = int(os.environ.get("TUNEFLEET_PROGRAMS", "0"))
#: Of each way that a block is scheduled.
_SOME = ["matmul_odd", "winograd", "conv_stride", "transposed", "softmax", "sum", "argmax"]


def random_modules(program, target=GPU, count=_COUNT, without=()):
    """Random scheduled programs of a task, by a name, but those of some sketches."""
    space = task_space(program, target).decisions
    rng = np.random.default_rng(0)
    traces = []
    for number, sketch in enumerate(space.sketches):
        if number in without:
            continue
        if count or number in (0, len(space.sketches) - 1):
            picks = sketch.sample(max(1, count), rng)
            traces += space.traces(space.population(number, picks).distinct())
    task = load_program(program)
    return {f"p{i}": replay(task, target, trace).mod for i, trace in enumerate(traces)}


def given_for(program):
    """The arguments of a task but its result, and the shape and type of that."""
    info = tvm.s_tir.meta_schedule.arg_info.ArgInfo.from_prim_func(load_program(program)["main"])
    draw = np.random.default_rng(0)
    return [
        (0.3 * draw.standard_normal([int(d) for d in each.shape])).astype(str(each.dtype))
        for each in info[:-1]
    ], ([int(d) for d in info[-1].shape], str(info[-1].dtype))


def plain_result(program, arrays, made, folder):
    """Of the task's own loops, on this processor."""
    built = build_default(program, native_target(1), "plain", str(folder))
    assert isinstance(built, Built)
    result = tvm.runtime.tensor(np.zeros(*made))
    tvm.runtime.load_module(built.path)["main"](*map(tvm.runtime.tensor, arrays), result)
    return result.numpy()


@pytest.mark.parametrize("name", NAMES if _COUNT else _SOME)
def test_threads_compute_what_the_task_does(name, tmp_path):
    need_compiler()
    for program in programs_of(name, GPU):
        arrays, made = given_for(program)
        expected = plain_result(program, arrays, made, tmp_path)
        modules = random_modules(program)
        library = Library(modules, GPU, tmp_path)
        for each in modules:
            result = library.run(each, arrays)
            np.testing.assert_allclose(result, expected, rtol=2e-4, atol=2e-5, err_msg=each)
        _tell(name, library)


def _tell(name, library):
    copying = sum(COPY.search(source) is not None for source in library.sources.values())
    print(f"\n{name}: {len(library.sources)} programs, {copying} copy ahead")


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("data", ["float16", "int8"])
def test_small_numbers_are_fetched_by_vectors_that_code_has(data, transposed, tmp_path):
    """Without tensor cores, whatever widths were drawn for what does not lie side by side."""
    need_compiler()
    intrinsic = next(i for i in WARP_PRODUCTS if i.data == data and i.transposed == transposed)
    shapes = [(32, 48, 64), (31, 30, 40), (64, 64, 64)] if _COUNT else [(32, 48, 64)]
    for shape in shapes:
        program = product_and_sum(*shape, intrinsic)
        tensor = tensor_sketches(task_space(program, GPU).decisions)
        modules = random_modules(program, count=_COUNT or 1, without=tensor)
        arrays, made = given_for(program)
        expected = plain_result(program, arrays, made, tmp_path)
        library = Library(modules, GPU, tmp_path)
        for each in modules:
            np.testing.assert_allclose(library.run(each, arrays), expected, rtol=1e-3, atol=1e-3)
        _tell(f"{data} {shape}", library)
        if find_nvcc() is not None:
            compile_cubin(_together(library.sources), GPU.arch)


def _together(sources):
    """Several programs as one, since nvcc takes longest to begin."""
    include = re.compile(r"^ *#include.*$", re.M)
    included = dict.fromkeys(i for source in sources.values() for i in include.findall(source))
    apart = [
        f"namespace {name} {{\n{include.sub('', source)}\n}}".replace('extern "C"', "")
        for name, source in sources.items()
    ]
    # Those of nvcc's own runtime compiler are not for nvcc.
    return "\n".join([*(line for line in included if "cuda/std" not in line), *apart])


@pytest.mark.parametrize("most", [64, 256])
def test_a_search_keeps_a_users_limit_of_threads(most, tmp_path):
    need_compiler()
    target = parse_target(f"cuda/sm_80 -max_threads_per_block={most}")
    for name in ("softmax", "sum", "transpose"):
        for program in programs_of(name, target):
            modules = random_modules(program, target, count=2)
            arrays, _ = given_for(program)
            library = Library(modules, target, tmp_path)
            for each in modules:
                library.run(each, arrays)
                threads = re.findall(r"__launch_bounds__\((\d+)", library.sources[each])
                assert max(map(int, threads)) <= most


def test_a_sum_by_several_threads_in_a_loop_is_lowered():
    """Whose copies TVM would make where loops are unrolled."""
    (program,) = programs_of("softmax_between", GPU)
    unrolled = [m for m in random_modules(program, count=4).values() if _has_copies(m)]
    assert unrolled
    for module in unrolled:
        assert "__shfl_down_sync" in source_of_module(module, GPU)


def _has_copies(module):
    text = module.script()
    return "T.grid" in text and 'pragma_unroll_explicit": 0' in text


def test_a_missing_barrier_and_a_wrong_lane_are_seen(tmp_path):
    need_compiler()
    (program,) = programs_of("matmul_odd", GPU)
    with pytest.raises(AssertionError, match="another thread"):
        _changed(program, "__syncthreads();", "", tmp_path)
    (program,) = programs_of("sum", GPU)
    arrays, made = given_for(program)
    expected = plain_result(program, arrays, made, tmp_path)
    results = _changed(program, "[0], 1, 32)", "[0], 3, 32)", tmp_path)
    assert not all(np.allclose(result, expected, rtol=2e-4) for result in results)


def _changed(program, old, new, folder):
    """The results of programs whose source was changed."""
    modules = random_modules(program, count=4)
    library = Library(modules, GPU, folder, lambda source: source.replace(old, new))
    arrays, _ = given_for(program)
    assert any(old in source for source in library.sources.values())
    return [library.run(each, arrays) for each in modules]
