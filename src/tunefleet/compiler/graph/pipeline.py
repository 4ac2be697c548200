"""The graph pipeline: an imported network becomes fused, layout-converted, tunable programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tunefleet.compiler.graph import winograd
from tunefleet.compiler.graph.attention import pad_attention
from tunefleet.compiler.graph.extremes import with_extremes
from tunefleet.compiler.graph.forms import with_forms
from tunefleet.compiler.graph.fusing import limited_fusion
from tunefleet.compiler.graph.layout import with_channels_last
from tunefleet.compiler.graph.legalize import legalize
from tunefleet.compiler.graph.narrow_products import with_narrow_products
from tunefleet.compiler.graph.one_dimension import with_images
from tunefleet.compiler.graph.quantized import integer_programs, prefers_unsigned, with_programs
from tunefleet.compiler.graph.simplify import simplify
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.compiler.toolchain.passes import reported_passes
from tunefleet.core.precision import FLOAT32, FLOATS

tvm = load_tvm()
relax = tvm.relax

#: LLVM's name of registers for tiles.
_TILES = "amx-tile"


def prepare(mod: Any, target: Any, precision: str = FLOAT32) -> Any:
    """Relax with weights as constants -> Relax calling fused PrimFuncs, ready for extraction.

    `target` is a TVM target. `precision` is that of products of floats, float32 or one of
    `FLOATS`. Weights that a schedule may repack are marked layout-free.
    """
    transform = relax.transform
    with target, tvm.transform.PassContext(opt_level=3, instruments=reported_passes()):
        mod = transform.CanonicalizeBindings()(mod)
        mod = with_images(mod)
        mod = integer_programs(mod, unsigned=prefers_unsigned(target))
        mod = simplify(mod)
        mod = transform.DecomposeOpsForInference()(mod)
        mod = with_channels_last(mod)
        mod = transform.CanonicalizeBindings()(mod)
        tiles = _has_tiles(target)
        mod = simplify(mod)
        mod = with_programs(mod if _is_cpu(target) else pad_attention(mod), tiles=tiles)
        if _is_cpu(target):
            mod = with_extremes(mod)
        if precision in FLOATS:
            mod = with_narrow_products(mod, precision, gpu=not _is_cpu(target), tiles=tiles)
        prepared = _fused(mod, legalize())
        if any(winograd.pays(call) for call in _convolutions(mod)):
            prepared = with_forms(prepared, _fused(mod, legalize(fewer_products=True)))
        return prepared


def _is_cpu(target: Any) -> bool:
    return str(target.kind.name) == "llvm"


def _has_tiles(target: Any) -> bool:
    return _is_cpu(target) and bool(tvm.target.codegen.target_has_features(_TILES, target))


def _fused(mod: Any, legalized: Any) -> Any:
    transform = relax.transform
    passes = [legalized, transform.AnnotateTIROpPattern(), transform.FoldConstant()]
    mod = limited_fusion(tvm.transform.Sequential(passes)(mod))
    passes = [
        transform.FuseOps(),
        transform.FuseTIR(),
        transform.DeadCodeElimination(),
        transform.RewriteDataflowReshape(),
        transform.DeadCodeElimination(),
        transform.AttachAttrLayoutFreeBuffers(),
    ]
    return tvm.transform.Sequential(passes)(mod)


def _convolutions(mod: Any) -> Iterator[Any]:
    operator = tvm.ir.Op.get("relax.nn.conv2d")
    for block in mod["main"].body.blocks:
        for binding in block.bindings:
            if isinstance(binding.value, relax.Call) and binding.value.op == operator:
                yield binding.value
