"""Torch operators that are converted here: small modules against PyTorch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tunefleet.compiler.frontends import ImportRequest, load_network

torch = pytest.importorskip("torch")
torch.manual_seed(0)
pytestmark = [pytest.mark.tvm, pytest.mark.filterwarnings("ignore")]

aten = torch.ops.aten
_TIES = torch.tensor([[3.0, 1.0, 3.0, -2.0, 1.0], [0.0, 0.0, 5.0, 4.0, 0.0]])
_LONG = torch.arange(600.0).remainder(7).reshape(2, 300)
_LARGE = torch.linspace(-1, 1, 3 << 20).reshape(3, 1 << 20)
_HALF = torch.randn(4, 3, 3).half()
_EXPERTS = torch.randn(4, 3, 5)
_EXTREMES = torch.tensor([[math.nan, math.inf, -math.inf], [-0.0, 0.0, -1.5]])
_UNKNOWN = torch.tensor([[1.0, math.nan, 2.0, -math.inf], [math.inf, 3.0, 3.0, math.nan]])
_ENDS = torch.tensor([[0.0, -0.0, 1.0, -1.0, 1 - 2**-24, 1e-20, -1e-20],
                      [-3.0, 2.0, 40.0, -2.5, math.inf, -math.inf, math.nan]])  # fmt: skip
_ORDERED = torch.tensor([-1.0, 0.0, 0.0, 3.0, 3.0, 4.5])
_PLACES = torch.randn(2, 6, 5, 4, 3)
_TILES = torch.randn(2, 3, 5, 4)
_WHOLE_NUMBERS = torch.tensor([[-7, -1, 0], [1, 5, 8]])


def _assigned(x: Any) -> Any:
    y = x.clone()
    y[-1, -2:] = 7
    return y


def _met(kind: str, own: bool) -> Any:
    index = torch.tensor([[0, 3, 0], [1, 1, 1]])
    return lambda x: x.scatter_reduce(1, index, x[:, 1:4] + 1, kind, include_self=own)


def _grouped(x: Any) -> Any:
    """Four experts, of which the second has no rows; the last two rows are of none."""
    pytest.importorskip("transformers.integrations.moe")
    ends = torch.tensor([2, 2, 5, len(x) - 2]) + (x[0, 0] > 99)
    return torch.ops.transformers.grouped_mm_fallback(x, _EXPERTS, ends)


_CASES = {
    "cumulative sum of truths": (lambda x: (x > 0).cumsum(1), _TIES),
    "cumulative sum beyond one block": (lambda x: x.cumsum(-1), _LONG),
    "cumulative sum of another axis": (lambda x: x.cumsum(0), _WHOLE_NUMBERS),
    "a number less whole numbers": (lambda x: 1.5 - x, _WHOLE_NUMBERS),
    "whole numbers and floats compared": (lambda x: x < 0.5, _WHOLE_NUMBERS),
    "a sum of truths": (lambda x: (x > 1) + (x < 0), _TIES),
    "a scaled sum": (lambda x: torch.add(x, x, alpha=3), _TIES),
    "a choice of two types": (lambda x: torch.where(x > 1, x, 0), _WHOLE_NUMBERS),
    "quotients rounded down": (lambda x: x // 3, _WHOLE_NUMBERS),
    "quotients rounded to zero": (lambda x: torch.div(x, 3, rounding_mode="trunc"), _WHOLE_NUMBERS),
    "floats rounded down": (lambda x: torch.div(x, 0.7, rounding_mode="floor"), _TIES),
    "the largest ones": (lambda x: tuple(torch.topk(x, 2)), _TIES + torch.arange(5) / 10),
    "the smallest ones of an axis": (
        lambda x: tuple(torch.topk(x, 1, 0, largest=False)),
        _TIES + _TIES,
    ),
    "an order that keeps ties": (lambda x: tuple(torch.sort(x, stable=True)), _TIES),
    "an order from the top": (lambda x: torch.argsort(x, 0, True), _WHOLE_NUMBERS),
    "a histogram": (lambda x: torch.histc(x, 4, 0, 3), _TIES),
    "a view of overlapping windows": (lambda x: (x * 2).as_strided((3, 4), (2, 1), 1), _TIES),
    "windows that overlap": (lambda x: x.unfold(1, 3, 2).unfold(2, 2, 1), torch.randn(2, 7, 4)),
    "windows side by side": (lambda x: x.unfold(-2, 3, 3), torch.randn(2, 7, 4)),
    "a lookup in inner axes": (lambda x: x[:, [[0], [-1]], [0, 2]], torch.randn(2, 3, 4)),
    "a lookup in separate axes": (lambda x: x[[0, 1], :, [2, -3]], torch.randn(2, 3, 4)),
    "a lookup by an input": (lambda x: _TIES[:, x.remainder(5)], _WHOLE_NUMBERS),
    "the last element of an axis": (lambda x: x.select(-1, -1), _TIES),
    "a part counted from the end": (lambda x: x[:, -3:-1], _TIES),
    "every second element": (lambda x: x[:, -4::2], _TIES),
    "the last element replaced": (
        lambda x: torch.select_scatter(x, x[:, 0] + 9, 1, -1),
        _TIES,
    ),
    "the last elements replaced": (
        lambda x: torch.slice_scatter(x, x[:, :2] + 9, 1, -2),
        _TIES,
    ),
    "the last element put by an assignment": (lambda x: _assigned(x), _TIES),
    "elements shifted in a circle": (lambda x: x.roll((-1, 2), (0, 1)), _TIES),
    "an axis turned round": (lambda x: x.flip(-1), _TIES),
    "rows put at known places": (
        lambda x: aten.index_put(x, [torch.tensor([2, 0, 2])], x[:1] + 1),
        torch.randn(3, 4),
    ),
    "overlapping windows added up": (
        lambda x: torch.nn.functional.fold(x, (4, 4), 3, padding=1),
        torch.randn(2, 9, 16),
    ),
    "rows added at places of an input": (
        lambda x: aten.index_put(torch.zeros(3, 9), [None, x.remainder(9)], x.float(), True),
        torch.tensor([7, 1, 7]),
    ),
    "a number put under a mask": (
        lambda x: aten.index_put(x * 2, [None, x[0] > 1], torch.tensor(7.0)),
        _TIES,
    ),
    "a large weight normalised": (
        lambda x: x - torch.nn.functional.batch_norm(_LARGE, None, None, training=True)[:2, :5],
        _TIES,
    ),
    "a convolution in half precision": (
        lambda x: aten.convolution(x, _HALF, _HALF[:, 0, 0], [1], [1], [1], False, [0], 1),
        torch.randn(2, 3, 5).half(),
    ),
    "exponentials with two scales": (lambda x: torch.nn.functional.selu(x), _TIES),
    "a transposed convolution of volumes": (
        lambda x: torch.nn.functional.conv_transpose3d(
            x, torch.ones(2, 3, 3, 2, 2) / 9, torch.ones(3), (2, 1, 2), 1, (1, 0, 0)
        ),
        torch.randn(1, 2, 3, 4, 3),
    ),
    "an antialiased image": (
        lambda x: torch.nn.functional.interpolate(x, (4, 9), mode="bilinear", antialias=True),
        torch.randn(1, 2, 9, 5),
    ),
    "an antialiased image by cubics": (
        lambda x: torch.nn.functional.interpolate(x, (4, 5), mode="bicubic", antialias=True),
        torch.randn(1, 2, 9, 5),
    ),
    "means of windows with a divisor": (
        lambda x: torch.nn.functional.avg_pool2d(x, 3, 2, 1, divisor_override=5),
        torch.randn(1, 2, 5, 6),
    ),
    "variances and means": (
        lambda x: torch.var_mean(x, (0, 2), correction=2, keepdim=True),
        torch.randn(2, 3, 4),
    ),
    "groups normalised without weights": (
        lambda x: torch.nn.functional.group_norm(x, 2),
        torch.randn(2, 4, 5),
    ),
    "a product that keeps its axis": (lambda x: x.prod(1, keepdim=True), _TIES + 0.5),
    "bits moved": (lambda x: (x << 2) | (x >> 1), _WHOLE_NUMBERS),
    "bags of an embedding": (
        lambda x: torch.nn.functional.embedding_bag(x.abs(), _LONG[:, :20].T, mode="mean"),
        _WHOLE_NUMBERS,
    ),
    "weighted bags of an embedding": (
        lambda x: torch.nn.functional.embedding_bag(
            x.abs(), _LONG[:, :20].T, mode="sum", per_sample_weights=torch.ones(2, 3) / 3
        ),
        _WHOLE_NUMBERS,
    ),
    **{
        f"the {kind} of what meets, {'with' if own else 'without'} what was there": (
            _met(kind, own),
            _TIES,
        )
        for kind in ("sum", "mean", "prod", "amax", "amin")
        for own in (True, False)
    },
    "a sign copied": (lambda x: torch.copysign(x + 2, x - 2) + torch.copysign(x, -1.0), _TIES),
    "a sign of zero copied": (lambda x: torch.copysign(torch.ones(3), x[1]), _EXTREMES),
    "numbers made finite": (lambda x: torch.nan_to_num(x), _EXTREMES),
    "numbers made finite that are known": (lambda x: x.nan_to_num(1, 2, 3), _EXTREMES),
    "hypotenuses": (lambda x: torch.hypot(x * 1e20, x[:, :1] * 1e20) / 1e20, _TIES),
    "truths as many as there are numbers": (
        lambda x: torch.where(torch.full_like(x, True, dtype=torch.bool), x, 0),
        _TIES,
    ),
    **{
        f"the largest of windows of several sizes in {len(size)} axes": (
            lambda x, size=size, pool=pool: pool(x, size, return_indices=True),
            torch.randn(2, 3, 7, 5, 6)[tuple([slice(None)] * 2 + [0] * (3 - len(size)))],
        )
        for pool, size in (
            (torch.nn.functional.adaptive_max_pool1d, (4,)),
            (torch.nn.functional.adaptive_max_pool2d, (3, 4)),
            (torch.nn.functional.adaptive_max_pool3d, (3, 5, 4)),
        )
    },
    "the largest of windows of one size": (
        lambda x: torch.nn.functional.adaptive_max_pool2d(x, (3, 2)),
        torch.randn(1, 2, 6, 8),
    ),
    "rows by the weights of their experts": (_grouped, torch.randn(9, 3)),
    **{
        f"the largest and smallest so far of axis {axis} of {kind}": (
            lambda x, axis=axis: (*x.cummax(axis), *x.cummin(axis)),
            x,
        )
        for kind, axis, x in (
            ("ties", 1, _TIES),
            ("what is no number", 1, _UNKNOWN),
            ("what is no number", 0, _UNKNOWN),
            ("whole numbers", -2, _WHOLE_NUMBERS),
            ("truths", 1, _TIES > 1),
            ("half precision", 1, _HALF),
            ("a number", 0, torch.tensor(2.0)),
        )
    },
    **{
        f"the logarithm of sums of exponentials of axis {axis} of {kind}": (
            lambda x, axis=axis: torch.logcumsumexp(x, axis),
            x,
        )
        for kind, axis, x in (
            ("ties", 1, _TIES),
            ("numbers that overflow", 0, _TIES * 200),
            ("what is no number", 1, _UNKNOWN),
            ("double precision", -1, _LONG.double()),
        )
    },
    **{
        f"places in order of {kind}": (
            lambda x, rows=rows: tuple(torch.searchsorted(rows, x, right=r) for r in (False, True)),
            x,
        )
        for kind, rows, x in (
            ("numbers in one row", _ORDERED, _TIES),
            ("what is no number", _ORDERED, _UNKNOWN),
            ("numbers in a row for each", torch.stack([_ORDERED, _ORDERED * 2]), _TIES),
            ("whole numbers", torch.tensor([-1, 0, 0, 5]), _WHOLE_NUMBERS),
        )
    },
    "places in what another order sorts": (
        lambda x: torch.searchsorted(x, x + 0.5, side="right", sorter=x.argsort(), out_int32=True),
        _TIES,
    ),
    "buckets": (
        lambda x: (torch.bucketize(x, _ORDERED), torch.bucketize(x, _ORDERED, right=True)),
        torch.cat([_UNKNOWN[0], _TIES[0]]),
    ),
    **{
        f"functions beyond those of C of {kind}": (
            lambda x: (x.erfc(), x.erfinv(), x.lgamma(), x.digamma(), x.i0()),
            x,
        )
        for kind, x in (
            ("numbers", torch.linspace(-6.3, 9.7, 200).reshape(4, 50)),
            ("large numbers", torch.linspace(-80, 80, 50)),
            ("double precision", torch.linspace(-0.99, 0.98, 30, dtype=torch.float64)),
            ("ends", _ENDS),
            ("a number", torch.tensor(0.3)),
            ("half precision", _HALF.abs() + 0.25),
            ("whole numbers", torch.tensor([[-2, -1, 0], [1, 2, 5]])),
        )
    },
    **{
        f"distances of degree {degree}": (
            lambda x, degree=degree: (
                torch.cdist(x, x[:, :2] + 1, degree),
                torch.nn.functional.pdist(x[0], degree),
            ),
            torch.randn(2, 3, 4) * torch.tensor([1, 0, 2, 1]),
        )
        for degree in (0.0, 1.0, 1.5, 2.0, 3.0, math.inf)
    },
    "numbers put on diagonals": (
        lambda x: tuple(
            torch.diagonal_scatter(x, x.diagonal(offset, *axes) * 3 + 1, offset, *axes)
            for offset in (0, 1, -2)
            for axes in ((0, 1), (-2, 0))
        ),
        torch.randn(3, 4, 2),
    ),
    **{
        f"{what} of {kind}": (f, x)
        for what, f in (
            ("medians", lambda x: (x.median(), *x.median(1), x.median(0, True)[0])),
            ("medians of what is known", lambda x: (x.nanmedian(), x.nanmedian(-1, True)[0])),
            ("what is most frequent", lambda x: (*x.mode(), *x.mode(0, True))),
        )
        for kind, x in (
            ("ties", _TIES),
            ("an even number", _TIES[:, :4] + torch.arange(4.0) / 8),
            ("what is no number", _UNKNOWN),
            ("whole numbers", _WHOLE_NUMBERS),
            ("three axes", torch.randn(3, 4, 2).round()),
        )
        # In what order PyTorch takes what is no number then depends on where it stands.
        if (what, kind) != ("what is most frequent", "what is no number")
    },
    **{
        f"bits of {kind} that are moved": (
            lambda x: tuple(
                shifted
                for by in (
                    torch.tensor([0, 1, 5]).to(x.dtype),
                    torch.tensor([8, 70, 3]).to(x.dtype),
                )
                for shifted in (
                    x << by,
                    x >> by,
                    x << 2,
                    x >> 2,
                    x >> -1 if x.dtype.is_signed else x,
                )
            ),
            x,
        )
        for kind, x in (
            ("whole numbers", _WHOLE_NUMBERS),
            ("bytes", (_WHOLE_NUMBERS + 150).to(torch.uint8)),
        )
    },
    "a sum of products of batches": (
        lambda x: (
            torch.addbmm(x[0], x, x.transpose(1, 2), beta=0.5, alpha=2),
            torch.addbmm(x[0], x, x, beta=0),
        ),
        torch.randn(2, 3, 3),
    ),
    "the second smallest": (
        lambda x: (*x.kthvalue(2), *x.kthvalue(2, 0, keepdim=True)),
        _LONG[:, :7] + torch.arange(2.0)[:, None] / 2,
    ),
    "numbers in the place of others": (
        lambda x: (
            x.masked_scatter(x > 0, torch.arange(60.0)),
            x.masked_scatter(torch.tensor([True, False, True, False]), x * 2),
            x[0].masked_scatter(x > 9, x),
        ),
        torch.randn(2, 3, 4),
    ),
    "a bilinear layer": (
        lambda x: torch.nn.functional.bilinear(
            x[:, :2], x[:, 2:], _EXPERTS[:, :2], torch.arange(4.0)
        ),
        torch.randn(6, 7),
    ),
    "averages of neighbours without a batch": (
        lambda x: (
            torch.nn.functional.avg_pool1d(x, 2),
            torch.nn.functional.adaptive_avg_pool1d(x, 2),
            torch.nn.functional.lp_pool1d(x, 2.0, 3),
        ),
        torch.rand(3, 7),
    ),
    "quotients of zero": (lambda x: (x / 0, x / -0.0, x / torch.tensor(0.0)), _EXTREMES),
    "extremes of a number": (
        lambda x: (x.amax(), x.amin(0), *x.max(0), x.any(0)),
        torch.tensor(-0.5),
    ),
    "small numbers beside 1": (
        lambda x: (
            *(x.log1p(), x.expm1(), x.double().log1p(), x.double().expm1()),
            torch.nn.functional.softplus(x * 4 - 20) * 1e8,
            torch.nn.functional.softplus(x, 3.0, 2.0),
        ),
        torch.cat([s * 10.0 ** torch.arange(-9, 2, 0.25) for s in (1, -0.09)] + [_ENDS.abs()[0]]),
    ),
    "statistics of the batch": (
        lambda x: torch.nn.functional.batch_norm(
            x, torch.zeros(3), torch.ones(3), torch.ones(3) * 2, training=True
        ),
        torch.randn(4, 3, 5),
    ),
    "what norms divide by": (
        lambda x: (
            *torch.native_layer_norm(x, [5], None, None, 1e-5),
            *torch.native_group_norm(x, None, None, 4, 3, 5, 3, 1e-5),
        ),
        torch.randn(4, 3, 5),
    ),
    "extremes of what is known": (
        lambda x: (torch.fmax(x, x[:1].flip(1)), torch.fmin(x, x[1:]), torch.fmax(x[0], x[0])),
        _UNKNOWN,
    ),
    "what differs from what is no number": (lambda x: (x != x, x != 3, x != x[:1]), _UNKNOWN),
    **{
        f"volumes between elements, {method}": (
            lambda x, method=method: tuple(
                torch.nn.functional.grid_sample(x, _PLACES, method, beyond, aligned)
                # Each way with one of the two alignments: LLVM takes seconds for each of them.
                for beyond, aligned in (("zeros", True), ("border", False), ("reflection", False))
            ),
            torch.randn(2, 3, 4, 5, 3) / 8,
        )
        for method in ("bilinear", "nearest")
    },
    **{
        f"two rows of places, {method}": (
            lambda x, method=method: tuple(
                torch.nn.functional.grid_sample(_TILES, x, method, beyond, aligned)
                for beyond, aligned in (("zeros", True), ("reflection", False))
            ),
            torch.randn(2, 2, 2, 2) / 2,
        )
        # By cubes PyTorch itself is up to 3.2e-6 from double precision, in 3,000 draws.
        for method in ("bilinear", "nearest", "bicubic")
    },
    **{
        f"what is no number, {what}": (forward, _UNKNOWN)
        for what, forward in {
            "of two tensors": lambda x: (torch.maximum(x, x.flip(1)), torch.minimum(x, x.flip(1))),
            "of a row and all": lambda x: (torch.maximum(x, x[:1]), torch.minimum(x[:1], x)),
            "cut off": lambda x: (x.clamp(-1, 2), x.clamp(min=-1), x.clamp(max=2)),
            "cut off by tensors": lambda x: x.clamp(x[:1] - 1, x[:1] + 1),
            "rectified": lambda x: (torch.relu(x), torch.nn.functional.relu6(x)),
            "below its top": lambda x: (
                torch.nn.functional.elu(x),
                torch.nn.functional.hardsigmoid(x),
            ),
            "of narrow numbers": lambda x: (torch.relu(x.half()), torch.relu(x.double())),
            "as a place": lambda x: torch.histc(x[:, 1], 4, 0, 3),
        }.items()
    },
    "an empty part": (lambda x: torch.cat([x[:, 2:], x[:, :0]], 1), _TIES),
}


@pytest.mark.parametrize("name", _CASES)
def test_an_operator_computes_what_torch_computes(name: str, tmp_path: Any, target: Any) -> None:
    from tunefleet.compiler.graph.pipeline import prepare
    from tunefleet.compiler.toolchain import load_tvm
    from tunefleet.compiler.toolchain.host import to_tvm

    forward, x = _CASES[name]

    class Network(torch.nn.Module):  # type: ignore[name-defined]
        def forward(self, x: Any) -> Any:
            return forward(x)

    torch.export.save(torch.export.export(Network(), (x,)), tmp_path / "network.pt2")
    network = load_network(tmp_path / "network.pt2", ImportRequest(tmp_path, whole=True))
    tvm = load_tvm()
    compiled = tvm.compile(prepare(network.mod, to_tvm(target)), to_tvm(target))
    machine = tvm.relax.VirtualMachine(compiled, tvm.cpu())
    found = machine["main"](tvm.runtime.tensor(np.array(x.numpy(), order="C")))
    expected = network.reference(network.example_inputs)
    outputs = [found] if len(expected) == 1 else list(found)
    for actual, wanted in zip(outputs, expected, strict=True):
        digits = 1e-3 if x.dtype is torch.float16 else 4e-6 if "bicubic" in name else 1e-6
        np.testing.assert_allclose(actual.numpy(), wanted, rtol=digits, atol=digits)


def test_functions_that_repeat_their_operand_compile(tmp_path: Any, target: Any) -> None:
    """With all of its steps in one expression, `erfinv` of five numbers had no end."""
    from tunefleet.compiler.code.executable import compile_to
    from tunefleet.stages.importing import PLAIN, import_network

    class Network(torch.nn.Module):  # type: ignore[name-defined]
        def forward(self, x: Any) -> Any:
            return torch.erfinv(torch.erfinv(x) / 4)

    program = torch.export.export(Network(), (torch.linspace(-0.9, 0.9, 5),))
    torch.export.save(program, tmp_path / "network.pt2")
    imported = import_network(str(tmp_path / "network.pt2"), target, tmp_path)
    compile_to(tmp_path / PLAIN, imported.module, target, {})
    assert len(imported.tasks) > 1


def test_an_operator_that_becomes_thousands_stays_in_pytorch(tmp_path: Any) -> None:
    class Network(torch.nn.Module):  # type: ignore[name-defined]
        def forward(self, x: Any) -> Any:
            return x + x**6000

    program = torch.export.export(Network(), (torch.tensor([-1, 1, 0]),))
    torch.export.save(program, tmp_path / "network.pt2")
    (segment,) = load_network(tmp_path / "network.pt2", ImportRequest(tmp_path)).segments
    assert [node.split()[1] for node in segment.nodes] == ["pow_1"]
