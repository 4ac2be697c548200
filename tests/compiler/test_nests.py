"""What programs do, from their decisions alone, is what their lowered form does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tunefleet.errors import ForeignError
from tunefleet.features.behaviours import encode

pytestmark = [pytest.mark.tvm, pytest.mark.slow]

TOLD = np.linspace(0, 1, 32, dtype=np.float32)


def behaviours_of(program: str, target: Any) -> Any:
    from tunefleet.compiler.nests.encoding import TaskBehaviours

    return TaskBehaviours(program, target)


def sketches(behaviours: Any) -> Any:
    from tunefleet.compiler.space.opening import task_space

    return task_space(behaviours.program, behaviours.target).decisions.sketches


def drawn(sketch: Any, count: int, seed: int = 3) -> Any:
    return sketch.settled(sketch.sample(count, np.random.default_rng(seed)))


def compare(program: str, target: Any, count: int) -> dict[int, int]:
    """By sketch, how many of some random programs were told, each as it is lowered."""
    behaviours = behaviours_of(program, target)
    told = {}
    for number, sketch in enumerate(sketches(behaviours)):
        picks = drawn(sketch, count)
        found = behaviours.derived(number).statements(picks)
        told[number] = sum(each is not None for each in found)
        for one, statements in zip(picks, found, strict=True):
            if statements is not None:
                lowered = behaviours.lowered(number, one)
                assert lowered is not None
                np.testing.assert_array_equal(encode(lowered, TOLD), encode(statements, TOLD))
    return told


def kinds(program: str, target: Any) -> list[set[str]]:
    return [{i[0] for i in s.instructions} for s in sketches(behaviours_of(program, target))]


def test_programs_of_a_network_do_what_they_do_when_they_are_lowered(
    tiny: Any, target: Any
) -> None:
    for weighted in tiny.tasks:
        told = compare(weighted.task.program, target, 3)
        for number, of in enumerate(kinds(weighted.task.program, target)):
            expected = {0} if "RFactor" in of else {3} if "Reorder" in of else {1, 2, 3}
            if "TransformLayout" in of:  # register tiles: most are lowered
                expected = {0, 1, 2, 3}
            assert told[number] in expected, weighted.task.name


def test_so_do_those_of_a_quantized_one(target: Any) -> None:
    from tunefleet.stages.importing import import_network

    program = import_network("zoo:tiny_cnn?precision=int8", target).tasks[0].task.program
    told = compare(program, target, 3)
    for number, of in enumerate(kinds(program, target)):
        if not {"RFactor", "Tensorize"} & of:
            assert told[number] == 3


def test_a_product_by_vectors_of_a_tensor_instruction_is_told() -> None:
    from tests.compiler.products import matrix_product

    from tunefleet.compiler.space.intrinsics import INTRINSICS, VectorIntrinsic, least_target

    intrinsic = next(each for each in INTRINSICS if isinstance(each, VectorIntrinsic))
    program = matrix_product(12, 3 * intrinsic.lanes, 16, intrinsic)
    target = least_target(intrinsic)
    told = compare(program, target, 4)
    for number, of in enumerate(kinds(program, target)):
        if "Tensorize" in of:
            assert told[number] == 4


def test_products_of_a_gpu_are_told_with_what_their_threads_fetch(tiny: Any, target: Any) -> None:
    from tunefleet.core.target import CudaTarget

    named = (w.task for w in tiny.tasks if w.task.name.startswith("matmul"))
    told = compare(next(named).program, CudaTarget("sm_80", target), 6)
    assert min(told.values()) >= 3


@pytest.mark.parametrize("data", ["float16", "int8"])
def test_so_are_vectors_that_are_narrower_than_was_drawn(data: str) -> None:
    from tests.compiler.gpu_products import GPU, product_and_sum

    from tunefleet.compiler.space.intrinsics import WARP_PRODUCTS

    intrinsic = next(i for i in WARP_PRODUCTS if i.data == data and i.transposed)
    program = product_and_sum(32, 48, 64, intrinsic)
    told = compare(program, GPU, 6)
    for number, of in enumerate(kinds(program, GPU)):
        if "Tensorize" not in of:
            assert told[number] == 6


def convolution(stride: int, dilation: int, *, finished: int = 0) -> str:
    """Of a picture of 10 x 10; its results are `finished` columns fewer."""
    from tunefleet.compiler.toolchain import load_tvm

    tvm = load_tvm()
    te = tvm.te
    data, kernel = te.placeholder((1, 10, 10, 4), name="a"), te.placeholder((3, 3, 4, 12), name="b")
    padded = te.compute(
        (1, 12, 12, 4),
        lambda n, y, x, c: tvm.tirx.if_then_else(
            tvm.tirx.all(y >= 1, y < 11, x >= 1, x < 11), data[n, y - 1, x - 1, c], 0.0
        ),
        name="pad",
    )
    rows = (12 - 2 * dilation - 1) // stride + 1
    i, j, k = (te.reduce_axis((0, n), name) for n, name in ((3, "i"), (3, "j"), (4, "k")))
    sums = te.compute(
        (1, rows, rows, 12),
        lambda n, y, x, f: te.sum(
            padded[n, y * stride + i * dilation, x * stride + j * dilation, k] * kernel[i, j, k, f],
            axis=[i, j, k],
        ),
        name="conv",
    )
    done = te.compute(
        (1, rows, rows, 12 - finished), lambda *index: te.max(sums[index], 0.0), name="relu"
    )
    function = te.create_prim_func([data, kernel, done]).with_attr("tirx.noalias", True)
    function = function.with_attr("layout_free_buffers", [1])
    return str(
        tvm.ir.save_json(tvm.IRModule({"main": function.with_attr("global_symbol", "main")}))
    )


@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 1), (1, 2), (3, 2)])
def test_windows_with_steps_and_holes_are_told(stride: int, dilation: int, target: Any) -> None:
    program = convolution(stride, dilation)
    found = compare(program, target, 6)
    tiled = ["TransformLayout" in of for of in kinds(program, target)]
    assert {count for number, count in found.items() if not tiled[number]} == {6}


def test_loops_that_go_beyond_a_block_are_left_to_the_compiler(target: Any) -> None:
    program = convolution(1, 1, finished=2)
    behaviours = behaviours_of(program, target)
    told = compare(program, target, 6)
    assert min(told.values()) == 0
    for number, sketch in enumerate(sketches(behaviours)):
        assert None not in behaviours.statements(number, drawn(sketch, 2))


class TestATask:
    """Its behaviours, wherever they are from."""

    @pytest.fixture
    def reduction(self, tiny: Any, target: Any) -> Any:
        named = (w.task for w in tiny.tasks if w.task.name.startswith("mean"))
        return behaviours_of(next(named).program, target)

    def test_what_does_not_follow_is_lowered_once(self, reduction: Any) -> None:
        picks = drawn(sketches(reduction)[0], 40)
        first = reduction.statements(0, picks)
        assert (
            reduction.counts.derived,
            reduction.counts.lowered + reduction.counts.remembered,
        ) == (0, 40)
        assert reduction.counts.lowered < 40
        lowered = reduction.counts.lowered
        assert first == reduction.statements(0, picks)
        assert lowered == reduction.counts.lowered
        for one, statements in zip(picks[:6], first, strict=False):
            assert reduction.lowered(0, one) == statements

    def test_programs_of_several_sketches_keep_their_order(self, reduction: Any) -> None:
        from tunefleet.compiler.space.opening import task_space

        space = task_space(reduction.program, reduction.target).decisions
        population = space.sample(12, np.random.default_rng(0))
        rows = reduction.encode(population, TOLD)
        for place, found in enumerate(rows):
            number = int(population.sketch[place])
            picks = population.picks[place, : len(space.sketches[number].choices)]
            lowered = reduction.lowered(number, picks.astype(np.int64))
            np.testing.assert_array_equal(encode(lowered, TOLD), found)

    def test_what_the_compiler_rejects_is_none(self, reduction: Any, monkeypatch: Any) -> None:
        def rejects(*_: Any) -> Any:
            raise ForeignError("no program")

        monkeypatch.setattr("tunefleet.compiler.nests.encoding.replay", rejects)
        assert reduction.statements(0, drawn(sketches(reduction)[0], 2)) == [None, None]
        assert reduction.counts.rejected == 2

    def test_a_template_that_says_something_else_is_given_up(
        self, conv_task: Any, target: Any, monkeypatch: Any
    ) -> None:
        behaviours = behaviours_of(conv_task.program, target)
        right = behaviours.lowered
        monkeypatch.setattr(behaviours, "lowered", lambda number, picks: right(number, picks)[:-1])
        tilings = ["TransformLayout" not in of for of in kinds(conv_task.program, target)]
        number = tilings.index(True) + 1
        found = behaviours.derived(number).statements(drawn(sketches(behaviours)[number], 5))
        assert found == [None] * 5
        assert set(behaviours.derived(number).why) == {
            "a program that was lowered does something else"
        }
