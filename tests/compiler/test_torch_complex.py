"""Torch's complex operators and Fourier transforms, written in real numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tunefleet.compiler.frontends import ImportRequest, load_network
from tunefleet.errors import InputError

torch = pytest.importorskip("torch")
torch.manual_seed(0)
pytestmark = [pytest.mark.tvm, pytest.mark.filterwarnings("ignore")]

fft = torch.fft
_WEIGHTS = torch.randn(4, 5, 6, dtype=torch.complex64)
_WINDOW = torch.hann_window(16)
_PLACES = torch.tensor([[0, 2], [1, 1], [5, 0]])
_ROWS = torch.randn(3, 6)


def _pairs(*results: Any) -> Any:
    return tuple(torch.view_as_real(z.resolve_conj()) if z.is_complex() else z for z in results)


def _frames(x: Any, **options: Any) -> Any:
    return torch.stft(x, 16, 4, window=_WINDOW, return_complex=True, **options)


def _assigned(x: Any) -> Any:
    z = fft.fft(x)
    z[:, 1] = 2
    z[0] = z[1]
    return z


def _filled(x: Any) -> Any:
    z = torch.zeros(3, 8, dtype=torch.complex64)
    z[:, :6] = fft.fft(x)
    return fft.ifft(z).real


def _of(convert: Any) -> Any:
    """Of a spectrum, and another."""
    return lambda x: _pairs(*convert(fft.fft(x), fft.fft(x * x - 1)))


_CASES = {
    "transforms of one axis": (
        lambda x: _pairs(fft.fft(x), fft.rfft(x, dim=0), fft.ifft(x, norm="ortho"), fft.fft(x, 9)),
        _ROWS,
    ),
    "transforms back to real numbers": (
        lambda x: (fft.irfft(z := torch.complex(x, 2 * x)), fft.irfft(z, 9), fft.hfft(z)),
        _ROWS,
    ),
    "a half that is conjugated": (lambda x: (fft.ihfft(x).imag, fft.ihfft(x).real), _ROWS),
    "long transforms": (
        lambda x: _pairs(fft.fft(x), fft.rfft(x, norm="ortho"), fft.rfft(x[:, :257])),
        torch.randn(2, 384),
    ),
    "long transforms back to real numbers": (
        lambda x: (fft.irfft(z := torch.complex(x, 2 * x), 600), fft.irfft(z[:, :138], 275)),
        torch.randn(2, 301),
    ),
    "transforms of two axes": (
        lambda x: (
            fft.ifft2(fft.fft2(x) * (1 + 2j)).real,
            fft.irfft2(fft.rfft2(x, norm="ortho") * 1j, s=(6, 5), norm="forward"),
            fft.irfftn(fft.rfftn(x)[..., :2]),
        ),
        torch.randn(2, 6, 5),
    ),
    "arithmetic": (
        _of(lambda z, w: (z * w + z, 3 * z - 1, z / (w + 3), 1 / (w + 3), (z - w) / (2 - 1j), -z)),
        _ROWS,
    ),
    "complex and real together": (
        lambda x: _pairs(fft.fft(x) + x[0], x[:, :1] * fft.fft(x), fft.fft(x) / (x[0] + 9)),
        _ROWS,
    ),
    "lengths and angles": (_of(lambda z, w: (z.abs(), w.angle(), z.conj() * w)), _ROWS),
    "functions": (
        _of(lambda z, w: ((z / 9).exp(), (z + 99).log(), z.sqrt(), z**2, (w + 99) ** 1.5)),
        _ROWS,
    ),
    "made of lengths and angles": (
        lambda x: _pairs(torch.polar(x.abs(), x), torch.exp(1j * x), x.to(torch.complex64) * 1j),
        _ROWS,
    ),
    "moved": (
        _of(lambda z, w: (
            torch.stack([z, w], 1)[..., ::2], z.roll(1, -1), w.flip(0), z[:, [2, 0]], z.T[None],
            z.reshape(-1), torch.cat([z, w], -1), torch.nn.functional.pad(z, (1, 2)),
            z.unbind(1)[2], z.split([1, 5], 1)[1], z.repeat(2, 1), z[0].expand(2, 6),
        )),
        _ROWS,
    ),
    "chosen": (
        lambda x: _pairs(
            torch.gather(fft.fft(x), 1, _PLACES), torch.where(x > 0, fft.fft(x), 0), _assigned(x)
        ),
        _ROWS,
    ),
    "put into a larger one": (_filled, _ROWS),
    "summed up": (_of(lambda z, w: (z.sum(0), w.mean(), z.cumsum(-1), z.sum())), _ROWS),
    "products of matrices": (
        _of(lambda z, w: (
            z @ w.T, torch.nn.functional.linear(z, _WEIGHTS[0], _WEIGHTS[1, :, 0]),
            torch.einsum("bx,iox->box", w, _WEIGHTS),
        )),
        _ROWS,
    ),
    "frames of a sound": (
        lambda x: _pairs(_frames(x), _frames(x, center=False, onesided=False, normalized=True)),
        torch.randn(2, 100),
    ),
    "frames put together": (
        lambda x: torch.istft(_frames(x) * 2, 16, 4, window=_WINDOW, length=100),
        torch.randn(1, 100),
    ),
    "infinities made complex": (
        lambda x: torch.view_as_real((x * 3e38 * 3e38).to(torch.complex64)),
        _ROWS,
    ),
    "double precision": (lambda x: fft.fft(x).abs(), _ROWS.double()),
}  # fmt: skip


def _loaded(forward: Any, x: Any, folder: Any, *, whole: bool) -> Any:
    class Network(torch.nn.Module):  # type: ignore[name-defined]
        def forward(self, x: Any) -> Any:
            return forward(x)

    torch.export.save(torch.export.export(Network(), (x,)), folder / "network.pt2")
    return load_network(folder / "network.pt2", ImportRequest(folder, whole=whole))


def _compare(network: Any, x: Any) -> None:
    from tunefleet.compiler.toolchain import load_tvm

    tvm = load_tvm()
    machine = tvm.relax.VirtualMachine(tvm.compile(network.mod, "llvm"), tvm.cpu())
    found = machine["main"](tvm.runtime.tensor(x.numpy()))
    expected = network.reference(network.example_inputs)
    outputs = [found] if len(expected) == 1 else list(found)
    for actual, wanted in zip(outputs, expected, strict=True):
        largest = max(1.0, float(np.abs(wanted[np.isfinite(wanted)]).max()))
        np.testing.assert_allclose(actual.numpy(), wanted, rtol=2e-5, atol=2e-6 * largest)


@pytest.mark.parametrize("name", _CASES)
def test_complex_numbers_are_computed_in_real_ones(name: str, tmp_path: Any) -> None:
    forward, x = _CASES[name]
    _compare(_loaded(forward, x, tmp_path, whole=True), x)


def test_a_complex_operator_without_a_rule_stays_in_torch_alone(tmp_path: Any) -> None:
    from tunefleet.artifacts.segments import register_segments, release_segments

    network = _loaded(lambda x: fft.fft(x).prod(1).real * 2, _ROWS, tmp_path, whole=False)
    (segment,) = network.segments
    assert [node.split()[0] for node in segment.nodes] == [
        "aten.view_as_complex.default",
        "prims.prod.default",
        "aten.view_as_real.default",
    ]
    names = register_segments(tmp_path)
    try:
        _compare(network, _ROWS)
    finally:
        release_segments(names)


def test_a_part_in_torch_may_give_what_torch_has_not_negated_yet(tmp_path: Any) -> None:
    from tunefleet.artifacts.segments import register_segments, release_segments
    from tunefleet.compiler.toolchain import load_tvm

    class Network(torch.nn.Module):  # type: ignore[name-defined]
        def forward(self, x: Any) -> Any:
            return fft.ihfft(x).imag

    (tmp_path / "segments").mkdir()
    program = torch.export.export(Network(), (_ROWS,))
    torch.export.save(program, tmp_path / "segments" / "negated.pt2")
    names = register_segments(tmp_path)
    try:
        tvm = load_tvm()
        found = tvm.get_global_func(names[0])(tvm.runtime.tensor(_ROWS.numpy()))
        np.testing.assert_allclose(found.numpy(), fft.ihfft(_ROWS).imag.resolve_neg(), atol=1e-6)
    finally:
        release_segments(names)


@pytest.mark.parametrize(
    ("forward", "x", "cause", "cure"),
    [
        (lambda x: x.abs(), torch.ones(2, dtype=torch.complex64),
         "input x is complex64, which TVM does not have", "torch.view_as_complex"),
        (lambda x: fft.fft(x), _ROWS,
         "output output is complex64, which TVM does not have", "torch.view_as_real"),
        (lambda x: x * 2, torch.ones(2).bfloat16(),
         "input x is bfloat16, which NumPy does not have", "float32"),
    ],
)  # fmt: skip
def test_who_lacks_the_type_of_an_input_or_output_is_told(
    forward: Any, x: Any, cause: str, cure: str, tmp_path: Any
) -> None:
    with pytest.raises(InputError, match=cause) as raised:
        _loaded(forward, x, tmp_path, whole=False)
    assert cure in str(raised.value.cure)
