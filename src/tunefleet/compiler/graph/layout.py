"""Images with their channels last.

TVM's ConvertLayout copies what it knows of all variables for each that it converts: 2,000 bindings
take 1.6 s, 6,000 take 23 s, 12,000 have no result after a minute. It converts each dataflow block
by itself, so a long network is given to it in blocks. The transposes between them cancel out
(`simplify.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tunefleet.compiler.graph.rewriting import bindings_of, op_name, operands, substituted
from tunefleet.compiler.toolchain import load_tvm

tvm = load_tvm()
relax = tvm.relax

#: NHWC keeps the channels of a pixel together: vector loads for 1x1 and depthwise convolutions,
#: and a packed weight of any blocking.
_LAYOUT = {
    "relax.nn.conv2d": ["NHWC", "HWIO"],
    "relax.nn.conv2d_transpose": ["NHWC", "HWIO"],
    "relax.nn.conv3d": ["NDHWC", "DHWIO"],
    # Said, so that it does not take the layout of what it reads: TVM has one definition of it.
    "relax.nn.conv3d_transpose": ["NCDHW", "IODHW"],
}
#: Maximum bindings of a dataflow block.
_LONGEST_BLOCK = 2_000


def with_channels_last(mod: Any) -> Any:
    """`mod` (Relax, one function `main`, NCHW) with its convolutions in NHWC; as it is where it has
    none."""
    bindings = bindings_of(mod["main"])
    if bindings is not None:
        if not any(map(_is_convolution, bindings)):
            return mod
        if len(bindings) > _LONGEST_BLOCK:
            mod = _in_blocks(mod, bindings)
    return relax.transform.ConvertLayout(_LAYOUT)(mod)


def _in_blocks(mod: Any, bindings: Sequence[Any]) -> Any:
    """`mod` with its bindings in several dataflow blocks."""
    main, builder = mod["main"], relax.BlockBuilder()
    blocks = _blocks(bindings)
    read_later = _read_later(blocks, main.body.body)
    new: dict[Any, Any] = {}
    with builder.function("main", list(main.params), attrs=dict(main.attrs or {})):
        for block in blocks:
            with builder.dataflow():
                for binding in block:
                    value = substituted(binding.value, new)
                    emit = builder.emit_output if binding.var in read_later else builder.emit
                    new[binding.var] = emit(value)
        builder.emit_func_output(substituted(main.body.body, new))
    made = builder.finalize()
    for name, program in mod.functions_items():
        if name.name_hint != "main":
            made.update_func(name, program)
    return made


def _blocks(bindings: Sequence[Any]) -> list[Sequence[Any]]:
    """Divided before convolutions where there are any: there the transposes cancel out."""
    blocks = []
    while len(bindings) > _LONGEST_BLOCK:
        places = range(_LONGEST_BLOCK, 0, -1)
        convolutions = (place for place in places if _is_convolution(bindings[place]))
        place = next(convolutions, _LONGEST_BLOCK)
        blocks.append(bindings[:place])
        bindings = bindings[place:]
    return [*blocks, bindings]


def _is_convolution(binding: Any) -> bool:
    return op_name(binding.value) in _LAYOUT


def _read_later(blocks: Sequence[Sequence[Any]], result: Any) -> set[Any]:
    """The variables that a later block reads, or that are returned."""
    block_of = {binding.var: i for i, block in enumerate(blocks) for binding in block}
    later = {var for var in operands(result) if var in block_of}
    for i, block in enumerate(blocks):
        for binding in block:
            later |= {var for var in operands(binding.value) if block_of.get(var, i) != i}
    return later
