from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tunefleet.core.forms import tile_height
from tunefleet.core.settings import MeasureSettings, SearchSettings
from tunefleet.core.task import TaskWeights
from tunefleet.core.trial import Built, Candidate, Failure, FailureKind, Measurement
from tunefleet.costmodel import RandomModel
from tunefleet.features.tilings import PROGRAM, WIDTH

pytestmark = pytest.mark.tvm

SETTINGS = SearchSettings(population=16, generations=1)
FIRST_NUMBER = WIDTH - PROGRAM
MEASURE = MeasureSettings(repeats=3, min_repeat_ms=0.05, final_repeats=10)


class LongInner(RandomModel):
    """A cost model that prefers long inner loops."""

    name = "long inner"

    def predict(self, programs: Any) -> np.ndarray:
        return np.array([float(p[:, FIRST_NUMBER].sum()) for p in programs])


LONG_INNER: Any = LongInner()


def request(task: Any, target: Any, **values: Any) -> Any:
    from tunefleet.search.selection import SelectRequest

    return replace(SelectRequest(task.program, target, SETTINGS, batch=4, seed=1), **values)


def selected(request: Any, guide: Any) -> Any:
    from tunefleet.compiler.space.opening import task_space
    from tunefleet.search.selection import select

    return select(request, task_space(request.program, request.target), guide)


@pytest.fixture(scope="module")
def candidates(conv_task: Any, target: Any) -> tuple[Candidate, ...]:
    return selected(request(conv_task, target), None).candidates


@pytest.fixture(scope="module")
def built(
    candidates: tuple[Candidate, ...], conv_task: Any, target: Any, tmp_path_factory: Any
) -> Built:
    from tunefleet.compiler.code.build import build_candidate

    first = candidates[0]
    directory = str(tmp_path_factory.mktemp("built"))
    found = build_candidate(conv_task.program, target, first.candidate_id, first.trace, directory)
    assert isinstance(found, Built)
    return found


def test_selection_depends_on_the_request_alone(
    candidates: tuple[Candidate, ...], conv_task: Any, target: Any
) -> None:
    again = selected(request(conv_task, target), None)
    assert [c.candidate_id for c in again.candidates] == [c.candidate_id for c in candidates]


def test_what_was_tried_is_not_selected_again(
    candidates: tuple[Candidate, ...], conv_task: Any, target: Any
) -> None:
    tried = frozenset(c.candidate_id for c in candidates)
    again = selected(request(conv_task, target, tried=tried), None)
    assert not tried & {c.candidate_id for c in again.candidates}


def test_the_best_known_are_bred_from_but_not_returned(
    candidates: tuple[Candidate, ...], conv_task: Any, target: Any
) -> None:
    from tunefleet.search.guide import Guide

    known = tuple((c.candidate_id, c.trace, 1e-3) for c in candidates)
    tried = frozenset(c.candidate_id for c in candidates)

    asked = request(conv_task, target, known=known, tried=tried, seed=5)
    found = selected(asked, Guide(LONG_INNER, None))
    assert found.candidates
    assert not tried & {c.candidate_id for c in found.candidates}


def test_scores_come_best_first_and_features_come_along(conv_task: Any, target: Any) -> None:
    from tunefleet.features import is_of_schema
    from tunefleet.search.guide import Guide

    settings = replace(SETTINGS, random_share=0.0)
    found = selected(
        request(conv_task, target, settings=settings), Guide(LONG_INNER, None)
    ).candidates
    # Programs of a form that is not measured yet come first.
    for tiled in (False, True):
        scores = [c.score for c in found if bool(tile_height(c.trace)) == tiled]
        assert scores
        assert scores == sorted(scores, reverse=True)
    assert all(is_of_schema(c.features) for c in found)


def test_a_donated_trace_comes_first(
    candidates: tuple[Candidate, ...], conv_task: Any, target: Any
) -> None:
    proposal = candidates[2]
    found = selected(request(conv_task, target, transfer_sources=(proposal.trace,), seed=77), None)
    assert found.candidates[0].candidate_id == proposal.candidate_id


def test_a_model_says_which_transfer_source_comes_first_but_the_tasks_own_programs_precede(
    candidates: tuple[Candidate, ...], conv_task: Any, target: Any
) -> None:
    from tunefleet.search.guide import Guide

    guide, number = Guide(LONG_INNER, None), len(candidates)
    asked = request(
        conv_task, target, transfer_sources=tuple(c.trace for c in candidates), batch=2 * number
    )  # fmt: skip
    found = selected(asked, guide).candidates[:number]
    assert {c.candidate_id for c in found} == {c.candidate_id for c in candidates}
    scores = [c.score for c in found]
    assert scores == sorted(scores, reverse=True)
    last = found[-1]
    again = selected(replace(asked, elsewhere=(last.trace,)), guide).candidates[:number]
    assert [c.candidate_id for c in again] == [
        last.candidate_id, *(c.candidate_id for c in found[:-1])
    ]  # fmt: skip


def test_transfer_sources_take_half_a_batch_of_a_model(
    candidates: tuple[Candidate, ...], conv_task: Any, target: Any
) -> None:
    from tunefleet.search.guide import Guide

    settings = replace(SETTINGS, random_share=0.0)
    asked = request(
        conv_task,
        target,
        settings=settings,
        transfer_sources=tuple(c.trace for c in candidates),
        batch=2,
    )
    first, second = selected(asked, Guide(LONG_INNER, None)).candidates
    assert first.candidate_id in {c.candidate_id for c in candidates}
    assert second.score > first.score


def test_a_transfer_source_that_does_not_fit_is_passed_over(conv_task: Any, target: Any) -> None:
    assert selected(
        request(conv_task, target, transfer_sources=("[[],[]]", "nonsense")), None
    ).candidates


def test_a_built_candidate_is_a_library(built: Built) -> None:
    assert Path(built.path).exists()
    assert built.build_s > 0
    assert built.args[-1] == ((1, 16, 16, 16), "float32")


def test_candidates_of_the_same_code_are_two_objects(
    candidates: tuple[Candidate, ...], conv_task: Any, target: Any, tmp_path: Path
) -> None:
    """Objects are kept by content, and those of a batch are removed once it is measured."""
    from tunefleet.compiler.code.build import build_candidate

    def content(candidate_id: str) -> bytes:
        trace = candidates[0].trace
        found = build_candidate(conv_task.program, target, candidate_id, trace, str(tmp_path))
        assert isinstance(found, Built)
        return Path(found.path).read_bytes()

    assert content("one") == content("one")
    assert content("one") != content("two")


def test_a_trace_that_does_not_fit_is_a_failed_trial(
    candidates: tuple[Candidate, ...], tiny: Any, target: Any, tmp_path: Path
) -> None:
    from tunefleet.compiler.code.build import build_candidate

    other = tiny.tasks[-1].task
    found = build_candidate(other.program, target, "x", candidates[0].trace, str(tmp_path))
    assert isinstance(found, Failure)
    assert found.kind is FailureKind.INSTANTIATE
    assert "\n" not in found.text


def test_measurement_keeps_every_repeat(built: Built) -> None:
    from tunefleet.stages.work import profile_candidate

    found = profile_candidate(built, MEASURE, None)
    assert isinstance(found, Measurement)
    assert len(found.latencies_s) == MEASURE.repeats


def test_a_hopeless_candidate_is_cut_short(built: Built) -> None:
    from tunefleet.stages.work import profile_candidate

    settings = replace(MEASURE, repeats=9, slow_repeats=2)
    found = profile_candidate(built, settings, best_s=1e-9)
    assert isinstance(found, Measurement)
    assert len(found.latencies_s) == 2


def test_a_missing_library_is_a_failed_trial(built: Built) -> None:
    from tunefleet.stages.work import profile_candidate

    found = profile_candidate(replace(built, path="/nowhere.so"), MEASURE, None)
    assert isinstance(found, Failure)
    assert found.kind is FailureKind.RUN_ERROR


def test_finalists_are_measured_in_turn(built: Built) -> None:
    from tunefleet.stages.work import profile_interleaved

    found = profile_interleaved([built, replace(built, path="/nowhere.so"), built], MEASURE)
    assert [type(f) for f in found] == [Measurement, Failure, Measurement]


def test_every_candidate_computes_what_the_default_computes(
    candidates: tuple[Candidate, ...], conv_task: Any, target: Any, tmp_path: Path
) -> None:
    from tunefleet.compiler.code.build import build_candidate, build_default
    from tunefleet.stages.work import check_output

    directory = str(tmp_path)
    default = build_default(conv_task.program, target, "default", directory)
    for c in candidates:
        built = build_candidate(conv_task.program, target, c.candidate_id, c.trace, directory)
        assert isinstance(default, Built)
        assert isinstance(built, Built)
        assert bool(built.packings) == (built.args != default.args)
        assert check_output(default, built, seed=3).difference == ""


def test_a_network_takes_the_code_that_was_measured(
    conv_task: Any, candidates: tuple[Candidate, ...], built: Built, target: Any, tmp_path: Path
) -> None:
    from tunefleet.artifacts.network import LoadedNetwork
    from tunefleet.compiler.code.executable import (
        compile_network,
        save_network,
        worst_difference,
    )
    from tunefleet.compiler.frontends import load_network
    from tunefleet.compiler.graph.pipeline import prepare
    from tunefleet.compiler.toolchain.host import to_tvm

    network = load_network("zoo:tiny_cnn")
    module = prepare(network.mod, to_tvm(target))
    traces = {conv_task.task_id: candidates[0].trace}
    compiled = compile_network(module, target, traces, {conv_task.task_id: Path(built.code)})
    assert list(compiled.codes.values()) == [Path(built.code)]
    save_network(compiled, tmp_path / "module.so")
    (name,) = compiled.codes
    assert f"__tvm_ffi_{name}".encode() in (tmp_path / "module.so").read_bytes()
    actual = LoadedNetwork(tmp_path / "module.so").run(network.example_inputs)
    assert worst_difference(network.reference(network.example_inputs), actual) < 1e-4


def test_a_program_of_many_operators_has_a_name_longer_than_of_a_file(
    built: Built, target: Any, tmp_path: Path
) -> None:
    from tunefleet.compiler.code.parallel import renamed

    name = "fused" + "_transpose_reshape" * 20
    (path,) = renamed({name: Path(built.code)}, target, tmp_path)
    assert f"__tvm_ffi_{name}".encode() in Path(path).read_bytes()


def test_packed_numbers_keep_their_type() -> None:
    from tunefleet.compiler.code.packing import with_weights_of
    from tunefleet.compiler.toolchain import load_tvm
    from tunefleet.core.trial import WeightOrder

    tvm = load_tvm()
    relax, te = tvm.relax, tvm.te
    x, indices = te.placeholder((8,), "float32", "x"), te.placeholder((2, 4), "int64", "indices")
    taken = te.compute((2, 4), lambda i, j: x[indices[i, j]], "taken")
    given = np.arange(8, dtype=np.int64)[::-1].copy()
    builder = relax.BlockBuilder()
    data = relax.Var("data", relax.TensorType((8,), "float32"))
    with builder.function("main", [data]):
        function = te.create_prim_func([x, indices, taken])
        name = builder.add_func(function, "take")
        with builder.dataflow():
            out = relax.TensorType((2, 4), "float32")
            call = builder.emit(relax.call_tir(name, (data, relax.const(given, "int64")), out))
            result = builder.emit_output(call)
        builder.emit_func_output(result)
    order = WeightOrder(1, (8,), (), (8,), (2, 4), (0, 1))
    packed = with_weights_of(builder.get(), {"take": ([(8,), (2, 4), (2, 4)], [order])})
    (constant,) = (
        field
        for binding in packed["main"].body.blocks[0].bindings
        if isinstance(binding.value, relax.Call)
        for field in binding.value.args[1].fields
        if isinstance(field, tvm.ir.GenericConst)
    )
    assert str(constant.value.dtype) == "int64"
    assert np.array_equal(constant.value.numpy(), given.reshape(2, 4))


def test_an_order_that_is_no_division_of_axes_is_refused() -> None:
    from tunefleet.compiler.code.packing import arguments_of
    from tunefleet.compiler.code.weight_orders import UnknownOrderError, packings_of
    from tunefleet.compiler.space.product_steps import PACKED
    from tunefleet.compiler.toolchain import load_tvm

    te, tvm = load_tvm().te, load_tvm()
    a = te.placeholder((8, 6), name="a")

    def packed(compute: Any, order: Any = None) -> Any:
        schedule = tvm.s_tir.Schedule(te.create_prim_func([a, te.compute((6, 8), compute, "p")]))
        block = schedule.get_sblock("p")
        if order is not None:
            schedule.transform_layout(block, ("write", 0), order)
        schedule.annotate(block, PACKED, True)
        return schedule.mod["main"]

    (turned,) = packings_of(packed(lambda i, j: a[j, i]))
    assert (turned.argument, turned.digits, turned.order) == (0, (8, 6), (1, 0))
    (last,) = packings_of(packed(lambda i, j: a[j, tvm.tirx.max(i - 1, 0)]))
    assert last.taken == ((1, (0, 0, 1, 2, 3, 4)),)
    (fused,) = packings_of(packed(lambda i, j: a[j, i], lambda i, j: [i * 8 + j]))
    assert (fused.digits, fused.order) == ((8, 6), (1, 0))
    for order, digits, places in [
        (lambda i, j: [i // 2, j % 4, i % 2 * 2 + j // 4], (2, 4, 3, 2), (2, 1, 3, 0)),
        (lambda i, j: [(i * 8 + j) // 16, (i * 8 + j) % 16], (8, 3, 2), (1, 2, 0)),
    ]:
        (cut,) = packings_of(packed(lambda i, j: a[j, i], order))
        assert (cut.digits, cut.order) == (digits, places)
    x, w = te.placeholder((8,), name="x"), te.placeholder((10,), name="w")
    product = te.create_prim_func([x, w, te.compute((8, 10), lambda i, j: x[i] * w[j], "p")])
    schedule = tvm.s_tir.Schedule(product.with_attr("layout_free_buffers", [1]))
    schedule.split(schedule.get_loops(schedule.get_sblock("p"))[1], [None, 3])
    assert tvm.s_tir.meta_schedule.postproc.RewriteLayout().apply(schedule)
    (longer,) = packings_of(schedule.mod["main"])
    assert (longer.padded, longer.digits, longer.order) == ((12,), (4, 3), (0, 1))
    given = np.arange(10, dtype="float32")
    built = Built("", "", tuple((shape, "float32") for shape in [(8,), (4, 3)]), 0.0, "", (longer,))
    _, taken = arguments_of(built, [np.ones(8, "float32"), given])
    assert np.array_equal(taken, np.pad(given, (0, 2)).reshape(4, 3))
    for unknown in (lambda i, j: a[j, i] * 2, lambda i, j: a[(i + j) // 2, i]):
        with pytest.raises(UnknownOrderError):
            packings_of(packed(unknown))


def test_weights_whose_axes_a_loop_crosses_are_read_as_they_are(
    target: Any, tmp_path: Path
) -> None:
    """A vector of 48 goes over the ends of rows of 128: no order of axes packs it."""
    from tunefleet.compiler.code.build import build_candidate
    from tunefleet.compiler.graph.tasks import normalized
    from tunefleet.compiler.toolchain import load_tvm
    from tunefleet.compiler.toolchain.programs import trace_text

    tvm = load_tvm()
    x, w = (tvm.te.placeholder(shape, name="x") for shape in [(2, 96, 128), (96, 128)])
    y = tvm.te.compute((2, 96, 128), lambda b, i, j: x[b, i, j] * w[i, j], "y")
    module = normalized(tvm.te.create_prim_func([x, w, y]).with_attr("layout_free_buffers", [1]))
    schedule = tvm.s_tir.Schedule(module)
    _, *inner = schedule.get_loops(schedule.get_sblock("y"))
    schedule.split(schedule.fuse(*inner), [None, 48])
    program = tvm.ir.save_json(module)
    built = build_candidate(program, target, "x", trace_text(schedule.trace), str(tmp_path))
    assert isinstance(built, Built)
    assert built.packings == ()


def test_a_program_that_computes_something_else_is_found_out(target: Any, tmp_path: Path) -> None:
    from tunefleet.compiler.code.build import compile_module
    from tunefleet.compiler.toolchain import load_tvm
    from tunefleet.stages.work import check_output

    te = load_tvm().te
    a = te.placeholder((8, 8), name="a")

    def program(factor: float) -> Any:
        return load_tvm().IRModule(
            {
                "main": te.create_prim_func(
                    [a, te.compute((8, 8), lambda i, j: a[i, j] * factor, name="b")]
                ).with_attr("global_symbol", "main")
            }
        )

    right = compile_module(program(2.0), target, "right", str(tmp_path))
    wrong = compile_module(program(2.01), target, "wrong", str(tmp_path))
    assert isinstance(right, Built)
    assert isinstance(wrong, Built)
    assert check_output(right, right, seed=1).difference == ""
    assert "differ" in check_output(right, wrong, seed=1).difference


def test_roots_are_checked_with_what_has_one(target: Any, tmp_path: Path) -> None:
    """Random arguments may be negative: the squares of a norm, computed elsewhere, are not."""
    from tunefleet.compiler.code.build import compile_module
    from tunefleet.compiler.graph.tasks import normalized
    from tunefleet.compiler.toolchain import load_tvm
    from tunefleet.stages.work import check_output

    tvm = load_tvm()
    a = tvm.te.placeholder((8, 8), name="a")

    def root(factor: float) -> Built:
        b = tvm.te.compute((8, 8), lambda i, j: tvm.tirx.sqrt(a[i, j]) * factor, name="b")
        program = normalized(tvm.te.create_prim_func([a, b]))
        found = compile_module(program, target, f"root{factor}", str(tmp_path))
        assert isinstance(found, Built)
        return found

    assert check_output(root(1.0), root(1.0), seed=1).difference == ""
    assert "differ" in check_output(root(1.0), root(1.01), seed=1).difference
    assert "finite" in check_output(root(1.0), root(float("inf")), seed=1).difference


def test_runs_of_a_network_with_many_weights_take_other_copies(
    built: Built, conv_task: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tunefleet.compiler.toolchain.programs import nbytes, weights
    from tunefleet.devices import runners
    from tunefleet.stages.work import profile_candidate, profile_interleaved

    indices, size = weights(conv_task.program)
    assert sum(nbytes(*built.args[i]) for i in indices) == size > 0
    made: list[int] = []
    rotation = runners._rotation

    def rotated(*arguments: Any) -> Any:
        made.append(arguments[2])
        return rotation(*arguments)

    monkeypatch.setattr(runners, "_rotation", rotated)
    monkeypatch.setattr(runners, "_COLD_BYTES", 0)
    cold = TaskWeights(indices, 5 * size)
    assert isinstance(profile_candidate(built, MEASURE, None, cold), Measurement)
    assert [type(f) for f in profile_interleaved([built], MEASURE, cold)] == [Measurement]
    assert made == [5, 5]
    for warm in (TaskWeights(), TaskWeights(indices, size)):  # no weights, no other weights
        assert isinstance(profile_candidate(built, MEASURE, None, warm), Measurement)
    assert made == [5, 5]


def test_copies_of_weights_are_aligned_and_apart(built: Built, conv_task: Any) -> None:
    from tunefleet.compiler.toolchain.programs import nbytes, weights
    from tunefleet.devices import runners

    indices, _ = weights(conv_task.program)
    sets = runners._rotation(built, indices, 3)
    assert len(sets) == 3
    for i, (shape, dtype) in enumerate(built.args):
        places = [np.from_dlpack(arguments[i]).ctypes.data for arguments in sets]
        assert [(shape, dtype)] * 3 == [(a[i].shape, str(a[i].dtype)) for a in sets]
        if i in indices:
            assert all(place % 64 == 0 for place in places)
            assert min(np.diff(places)) >= nbytes(shape, dtype)
        else:
            assert len(set(places)) == 1
