"""Both extremes of a tensor by one program."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.compiler.test_graph import build, relax_names, run

pytestmark = pytest.mark.tvm


def _range(axis: Any = None, keepdims: bool = False) -> Any:
    from tvm.relax import op

    def emit(builder: Any, x: Any) -> Any:
        high = builder.emit(op.max(x, axis, keepdims))
        low = builder.emit(op.min(x, axis, keepdims))
        return op.concat([builder.emit(op.reshape(part, (-1,))) for part in (low, high)], 0)

    return emit


@pytest.mark.parametrize(
    "shape", [(1,), (31,), (3, 5, 7), (1, 64, 512), (3, 2**17 + 5), (2**19 - 7,)], ids=str
)
def test_they_are_the_least_and_the_largest(shape):
    from tunefleet.compiler.graph.extremes import with_extremes

    mod = with_extremes(build(_range(), shape))
    assert not {"relax.min", "relax.max"} & set(relax_names(mod))
    x = np.random.default_rng(0).standard_normal(shape).astype("float32")
    for place in {0, x.size // 3, x.size - 1}:
        for sign in (-9, 9):
            changed = x.copy()
            changed.flat[place] = sign
            found = run(mod, changed).reshape(2)
            np.testing.assert_array_equal(found, [changed.min(), changed.max()])
    infinite = np.full(shape, -np.inf, "float32")
    np.testing.assert_array_equal(run(mod, infinite).reshape(2), [-np.inf, -np.inf])


@pytest.mark.parametrize(
    ("form", "dtype"),
    [({"axis": [1]}, "float32"), ({"keepdims": True}, "float32"), ({}, "float64")],
)
def test_others_stay_reductions(form, dtype):
    from tunefleet.compiler.graph.extremes import with_extremes

    mod = with_extremes(build(_range(**form), (3, 5), dtype))
    assert {"relax.min", "relax.max"} <= set(relax_names(mod))


def test_one_extreme_stays_a_reduction():
    from tvm.relax import op

    from tunefleet.compiler.graph.extremes import with_extremes

    mod = with_extremes(build(lambda builder, x: op.max(x)))
    assert "relax.max" in relax_names(mod)


@pytest.mark.parametrize(("target", "together"), [("native", True), ("cuda/sm_80", False)])
def test_what_a_network_quantises_by_is_found_together_on_a_cpu(target, together):
    from tunefleet.compiler.graph.pipeline import prepare
    from tunefleet.compiler.toolchain.host import parse_target, to_tvm

    prepared = prepare(build(_range(), (4, 8)), to_tvm(parse_target(target)))
    names = [variable.name_hint for variable in prepared.get_global_vars()]
    assert together == any(name.startswith("extremes") for name in names)
