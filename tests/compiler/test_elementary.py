"""exp, erf, tanh and powers in generated code: as exact as they say, for all numbers, no libm."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tunefleet.compiler.toolchain import load_tvm
from tunefleet.compiler.toolchain.host import native_target, to_tvm

pytestmark = pytest.mark.tvm

SIZE = 1 << 16
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, 88.7228, -87.5, -103.0, 100.0, -110.0])
Floats = Any


def compiled(function: Callable[[Any], Any], dtype: str = "float32", vector: int = 16) -> Any:
    """A program that takes and makes an array of SIZE numbers."""
    tvm = load_tvm()
    from tvm import te

    given = te.placeholder((SIZE,), dtype=dtype, name="given")
    made = te.compute((SIZE,), lambda i: function(given[i]), name="made")
    schedule = tvm.s_tir.Schedule(te.create_prim_func([given, made]))
    (loop,) = schedule.get_loops(schedule.get_sblock("made"))
    _, inner = schedule.split(loop, [None, vector])
    if vector > 1:
        schedule.vectorize(inner)
    return tvm.tirx.build(schedule.mod, target=to_tvm(native_target()))


def computed(library: Any, x: Floats) -> Floats:
    tvm = load_tvm()
    out = tvm.runtime.tensor(np.zeros_like(x))
    library["main"](tvm.runtime.tensor(x), out)
    return out.numpy()


def function(name: str) -> Callable[..., Any]:
    load_tvm()
    from tvm import tirx

    found: Callable[..., Any] = getattr(tirx, name)
    return found


def exact(name: str, x: Floats) -> Floats:
    if name == "erf":
        return np.array([math.erf(v) for v in x])
    with np.errstate(all="ignore"):
        known: Floats = getattr(np, name)(x)
        return known


def numbers(low: float, high: float) -> Floats:
    spread = np.linspace(low, high, SIZE - 4096 - len(SPECIAL))
    return np.concatenate([spread, np.geomspace(1e-30, 1, 4096), SPECIAL]).astype(np.float32)


@pytest.mark.parametrize("vector", [1, 16, 32])
@pytest.mark.parametrize(
    ("name", "low", "high", "units"),
    [("exp", -87, 88.7, 2), ("erf", -5, 5, 6), ("tanh", -12, 12, 6)],
)
def test_a_function_is_as_exact_as_it_says(
    name: str, low: float, high: float, units: float, vector: int
) -> None:
    x = numbers(low, high)
    made = computed(compiled(function(name), vector=vector), x)
    expected = exact(name, x.astype(np.float64))
    with np.errstate(over="ignore"):
        rounded = expected.astype(np.float32)
    finite = np.isfinite(rounded)
    if name == "exp":
        small = expected < 2**-125.5
        assert not made[small].any()
        finite &= ~small
        rounded[small] = 0
    off = np.abs(made[finite] - expected[finite]) / np.spacing(np.abs(rounded[finite]))
    assert off.max() <= units
    np.testing.assert_array_equal(made[~finite], rounded[~finite])
    if name != "exp":
        assert np.abs(made[np.isfinite(made)]).max() == 1.0


@pytest.mark.parametrize(("dtype", "worst"), [("float16", 1e-3), ("float64", 1e-14)])
@pytest.mark.parametrize("vector", [1, 16])
@pytest.mark.parametrize("name", ["exp", "erf", "tanh"])
def test_other_types_are_as_exact_as_their_width(
    name: str, vector: int, dtype: str, worst: float
) -> None:
    x = np.linspace(-4, 4, SIZE).astype(dtype)
    made = computed(compiled(function(name), dtype, vector), x)
    np.testing.assert_allclose(made, exact(name, x.astype(np.float64)), rtol=worst, atol=worst)


def test_functions_within_functions() -> None:
    erf, exp, tanh = function("erf"), function("exp"), function("tanh")
    x = np.linspace(-3, 3, SIZE).astype(np.float32)
    made = computed(compiled(lambda v: erf(exp(erf(v)) * v)), x)
    inner = exact("exp", exact("erf", x.astype(np.float64)))
    np.testing.assert_allclose(made, exact("erf", inner * x), atol=1e-6)
    made = computed(compiled(lambda v: tanh(exp(tanh(v)))), x)
    np.testing.assert_allclose(made, np.tanh(np.exp(np.tanh(x.astype(np.float64)))), atol=1e-6)


def test_functions_within_functions_do_not_grow(tmp_path: Path) -> None:
    erf, exp, tanh = function("erf"), function("exp"), function("tanh")
    path = tmp_path / "code.o"
    compiled(lambda v: exp(tanh(exp(erf(tanh(v)))))).write_to_file(str(path))
    assert path.stat().st_size < 50_000


@pytest.mark.parametrize("exponent", [2.0, 3.0, 7.0, 2.5, -1.0, 0.5])
def test_powers(exponent: float) -> None:
    power = function("power")
    x = np.linspace(0.1, 3, SIZE).astype(np.float32)
    made = computed(compiled(lambda v: power(v, exponent)), x)
    np.testing.assert_allclose(made, x.astype(np.float64) ** exponent, rtol=1e-6)


@pytest.mark.parametrize(("dtype", "worst"), [("float16", 1e-3), ("float64", 1e-14)])
def test_powers_of_other_types(dtype: str, worst: float) -> None:
    power, const = function("power"), function("const")
    x = np.linspace(0.5, 1.5, SIZE).astype(dtype)
    made = computed(compiled(lambda v: power(v, const(7.0, dtype)), dtype), x)
    np.testing.assert_allclose(made, x.astype(np.float64) ** 7, rtol=worst)


def test_cubes_of_negative_numbers() -> None:
    power = function("power")
    x = np.linspace(-3, 3, SIZE).astype(np.float32)
    made = computed(compiled(lambda v: power(v, 3.0)), x)
    np.testing.assert_allclose(made, x**3, rtol=1e-6)


@pytest.mark.parametrize("name", ["exp", "erf", "tanh", "sigmoid"])
def test_float32_code_does_not_call_libm(name: str, tmp_path: Path) -> None:
    path = tmp_path / "code.o"
    compiled(function(name)).write_to_file(str(path))
    code = path.read_bytes()
    assert not [symbol for symbol in (b"expf", b"erff", b"tanhf") if symbol in code]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nearbyint", r"@llvm\.nearbyint\.v16f32"),
        ("rsqrt", r"@llvm\.sqrt\.v16f32"),
        ("isnan", r"fcmp (uno|ord) <16 x float>"),
    ],
)
def test_what_rounding_needs_is_done_in_vectors(name: str, said: str) -> None:
    """LLVM finds vectors of 16 numbers again in some loops, and in others not."""
    tvm = load_tvm()
    from tvm import te

    def computed(number: Any) -> Any:
        made = getattr(tvm.tirx, name)(number)
        zero = tvm.tirx.const(0, "float32")
        return tvm.tirx.Select(made, zero, number) if name == "isnan" else made

    x = te.placeholder((64, 48), "float32", "x")
    y = te.compute((64, 48), lambda i, j: computed(x[i, j]), "y")
    schedule = tvm.s_tir.Schedule(te.create_prim_func([x, y]))
    _, last = schedule.get_loops(schedule.get_sblock("y"))
    _, vector = schedule.split(last, [None, 16])
    schedule.vectorize(vector)
    target = tvm.target.Target({"kind": "llvm", "mcpu": "x86-64-v4"})
    text = tvm.tirx.build(schedule.mod, target=target).inspect_source("ll")
    assert re.search(said, text)
