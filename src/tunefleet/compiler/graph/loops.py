"""Programs that are written as loops: what TE has no words for, such as steps that depend on one
another.

They are fused with nothing, and MetaSchedule has nothing to choose in them: they run as written.
Each is written as loops of a CPU and as kernels of a GPU (`kernels.py`), some also as loops by an
instruction that not every CPU has. All but the first are attributes of it until a graph is prepared
for its target.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi

from tunefleet.compiler.graph.folding import ints
from tunefleet.compiler.graph.kernels import THREADS, each
from tunefleet.compiler.toolchain import load_tvm

tvm = load_tvm()
relax, topi = tvm.relax, tvm.topi

from tvm.script.ir_builder import IRBuilder  # noqa: E402  (TVM is loaded our way first)
from tvm.script.ir_builder import tirx as T  # noqa: E402

__all__ = [
    "Instructed",
    "Packing",
    "T",
    "Write",
    "allocated",
    "call_loops",
    "call_program",
    "for_target",
    "is_gpu",
    "name_of",
    "parallel",
    "unnamed",
    "with_roots",
]

#: The attribute of a program that is it as kernels, once for each number of `kernels.THREADS`.
_KERNELS = "tunefleet.kernels"
#: The attribute of a program that is it by instructions, each with what it needs and reads.
_INSTRUCTED = "tunefleet.instructed"
#: The attribute of a program that has forms by instructions: what it is called in each of them.
_NAME = "tunefleet.name"
#: TVM's attribute of a program whose operations are counted.
_FLOPS = "estimated_flops"
#: Of TVM's patterns of operators, the one that is fused with nothing.
_OPAQUE = 8
#: Of a thread's own memory, which is on its stack, at most.
_OWN_BYTES = 2**16

_CALL_TIR = tvm.ir.Op.get("relax.call_tir")

Write = Callable[[list[Any], list[Any]], None]
WriteKernels = Callable[[list[Any], list[Any], int], None]
WriteStep = Callable[[list[Any], list[Any], Any], None]


@dataclass(frozen=True, slots=True)
class Packing:
    """Another order of an input's numbers: its axes are split into `split`, which are put into
    `order` and joined to `shape`."""

    split: tuple[int, ...]
    order: tuple[int, ...]
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Instructed:
    """A program for CPUs that have all of `features` (LLVM's names). It reads input number `input`
    packed, and is else the same."""

    features: frozenset[str]
    input: int
    packing: Packing
    write: Write


def call_loops(
    builder: Any,
    name: str,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    write: Write,
    kernels: WriteKernels,
    instructed: Sequence[Instructed] = (),
) -> Any:
    """A call of a program that `write` writes for a CPU and `kernels` for a GPU, both given the
    buffers of inputs and outputs. A CPU runs the first of `instructed` whose features it has.

    `inputs` are Relax expressions of static shape, `outputs` tensor types; the result is a tuple
    unless there is one output. While they write, the IRBuilder of TVM is open; buffers take one
    index for each dimension, or one for all of them. What `kernels` writes stands in kernels, but
    for memory that they share and serial loops over them; the number that it is also given is how
    many threads a block may have.
    """
    types = [x.ty for x in inputs]
    function = _program(name, types, outputs, write)

    def within(most: int) -> Write:
        return lambda inputs, outputs: kernels(inputs, outputs, most)

    of_gpu = [_program(name, types, outputs, within(most)) for most in THREADS]
    function = function.with_attr(_KERNELS, of_gpu)
    if instructed:
        module = tvm.IRModule({name: function})
        flops = int(tvm.s_tir.analysis.estimate_tir_flops(module))
        made = [_with_instruction(name, types, outputs, each, flops) for each in instructed]
        function = function.with_attr(_INSTRUCTED, made)
    variable = builder.add_func(function, name)
    return relax.call_tir(variable, list(inputs), list(outputs) if len(outputs) > 1 else outputs[0])


def call_program(
    builder: Any, name: str, inputs: Sequence[Any], outputs: Sequence[Any], write: Write
) -> Any:
    """As `call_loops`, of a program for CPUs alone."""
    variable = builder.add_func(_program(name, [x.ty for x in inputs], outputs, write), name)
    return relax.call_tir(variable, list(inputs), list(outputs) if len(outputs) > 1 else outputs[0])


def _with_instruction(
    name: str, inputs: Sequence[Any], outputs: Sequence[Any], form: Instructed, flops: int
) -> dict[str, Any]:
    """As an attribute holds it. TVM cannot count the operations of an instruction."""
    packing = form.packing
    types = list(inputs)
    types[form.input] = relax.TensorType(packing.shape, str(types[form.input].dtype))
    return {
        "features": sorted(form.features),
        "program": _program(name, types, outputs, form.write).with_attr(_FLOPS, flops),
        "input": form.input,
        "split": packing.split,
        "order": packing.order,
        "shape": packing.shape,
    }


def _program(name: str, inputs: Sequence[Any], outputs: Sequence[Any], write: Write) -> Any:
    with IRBuilder() as script:
        with T.prim_func(s_tir=True):
            T.func_name(name)
            T.func_attr({"tirx.noalias": True, "op_pattern": _OPAQUE})
            sources = [_argument(f"x{i}", type_) for i, type_ in enumerate(inputs)]
            targets = [_argument(f"y{i}", type_) for i, type_ in enumerate(outputs)]
            with T.sblock("root"), T.sblock(name):
                T.reads(*map(_whole, sources))
                T.writes(*map(_whole, targets))
                write([T.buffer_proxy(s) for s in sources], [T.buffer_proxy(t) for t in targets])
        # The module names it: equal programs are one.
        return script.get().without_attr("global_symbol")


def for_target() -> Any:
    """A pass that leaves of each of these programs the form that the current target runs."""

    def transform(mod: Any, _: Any) -> Any:
        target = tvm.target.Target.current(allow_none=True)
        result = mod.clone()
        packed = {}
        for variable, function in mod.functions_items():
            if isinstance(function, tvm.tirx.PrimFunc) and _KERNELS in (function.attrs or {}):
                form = _by_instruction(function, target)
                if form is not None:
                    packed[variable] = form
                program = form["program"] if form else _plain(function, target)
                result.update_func(variable, _named(program, function))
        return _packed(result, packed) if packed else result

    return tvm.transform.module_pass(transform, opt_level=0, name="for_target")


def name_of(function: Any) -> str | None:
    """What a program is called whichever of its forms it is; None for one without forms by
    instructions. Forms of one name read and write the same, but for weights, which are packed."""
    name = (function.attrs or {}).get(_NAME)
    return None if name is None else str(name)


def unnamed(function: Any) -> Any:
    """A program without that name, which is no part of what it computes."""
    return function if name_of(function) is None else function.without_attr(_NAME)


def _named(program: Any, function: Any) -> Any:
    """A form of a function, with the name of all forms if it has some by instructions."""
    if _INSTRUCTED not in function.attrs:
        return program
    return program.with_attr(_NAME, f"{tvm_ffi.structural_hash(function) & (2**64 - 1):016x}")


def is_gpu(target: Any) -> bool:
    """Whether programs are for a GPU; without a target they are not."""
    return target is not None and "gpu" in target.keys


def _plain(function: Any, target: Any) -> Any:
    """A program without instructions of one processor."""
    if not is_gpu(target):
        return function.without_attr(_KERNELS).without_attr(_INSTRUCTED)
    most = int(target.attrs["max_threads_per_block"])
    kernels = zip(THREADS, function.attrs[_KERNELS], strict=True)
    return next(form for threads, form in kernels if threads <= most)


def _by_instruction(function: Any, target: Any) -> Mapping[str, Any] | None:
    """The first of its forms by an instruction that a target has."""
    if target is None or is_gpu(target):
        return None
    has = tvm.target.codegen.target_has_features
    for form in function.attrs.get(_INSTRUCTED, ()):
        if has(list(form["features"]), target):
            return dict(form)
    return None


def _packed(mod: Any, forms: Mapping[Any, Mapping[str, Any]]) -> Any:
    """With the inputs of programs as their forms by instructions read them: what is constant is
    packed when constants are folded."""
    writer = _Packed(mod, forms)
    function = writer.visit_expr(mod["main"])
    written = writer.builder_.get()
    written.update_func(written.get_global_var("main"), function)
    return written


@relax.expr_functor.mutator
class _Packed(relax.PyExprMutator):  # type: ignore[misc, name-defined]
    def __init__(self, mod: Any, forms: Mapping[Any, Mapping[str, Any]]) -> None:
        super().__init__(mod)
        self._forms = forms

    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        form = self._forms.get(call.args[0]) if call.op == _CALL_TIR else None
        if form is None:
            return call
        fields = list(call.args[1].fields)
        packing = [ints(form[name]) for name in ("split", "order", "shape")]
        packed = self.builder_.emit_te(_pack, fields[form["input"]], *packing)
        fields[form["input"]] = packed
        outputs = call.ty_args[0]
        outputs = list(outputs.fields) if isinstance(outputs, relax.TupleType) else outputs
        return relax.call_tir(call.args[0], fields, outputs)


def _pack(x: Any, split: Sequence[int], order: Sequence[int], shape: Sequence[int]) -> Any:
    return topi.reshape(topi.transpose(topi.reshape(x, split), order), shape)


def parallel(count: int) -> Any:
    """A loop whose iterations a CPU's threads share."""
    return (T.parallel if count > 1 else T.serial)(0, count)


def alone(count: int, step: WriteStep) -> tuple[Write, WriteKernels]:
    """What writes a program of `count` steps that need nothing of one another. A step is given the
    buffers of inputs and outputs and its number."""

    def write(inputs: list[Any], outputs: list[Any]) -> None:
        with parallel(count) as number:
            step(inputs, outputs, number)

    def kernels(inputs: list[Any], outputs: list[Any], most: int) -> None:
        with each(count, most) as number:
            step(inputs, outputs, number)

    return write, kernels


def allocated(shape: Sequence[int], dtype: str) -> Any:
    """Memory of a program, of each step of a parallel loop or of each thread of a kernel, indexed
    as the buffers that `write` is given. It is the thread's own unless it is large."""
    bits = int(tvm.DataType(dtype).bits)
    scope = "local" if math.prod(shape) * bits <= 8 * _OWN_BYTES else "global"
    return T.buffer_proxy(T.decl_buffer(list(shape), dtype, scope=scope))


def sum_type(dtype: str) -> str:
    """What sums of a type are kept in: of half precision single, as ONNX Runtime does."""
    return "float32" if dtype == "float16" else dtype


def with_roots() -> Any:
    """A pass that gives every program a root block. TVM writes some of its own definitions as loops
    (scatter), in one block, which later passes and schedules take for a root without blocks."""

    def transform(mod: Any, _: Any) -> Any:
        result = tvm.IRModule(dict(mod.functions_items()), attrs=mod.attrs)
        for variable, function in mod.functions_items():
            if isinstance(function, tvm.tirx.PrimFunc) and _is_one_block(function):
                result.update_func(variable, _rooted(function))
        return result

    return tvm.transform.module_pass(transform, opt_level=0, name="with_roots")


def _is_one_block(function: Any) -> bool:
    body = function.body
    return isinstance(body, tvm.s_tir.SBlockRealize) and body.block.name_hint != "root"


def _rooted(function: Any) -> Any:
    block = function.body.block
    body = block.body
    if isinstance(body, tvm.tirx.AttrStmt) and body.attr_key == "pragma_scope":
        # It says nothing to the code generator but makes it warn.
        body = body.body
    inner = tvm.s_tir.SBlock([], block.reads, block.writes, block.name_hint, body)
    root = tvm.s_tir.SBlock([], [], [], "root", tvm.s_tir.SBlockRealize([], True, inner))
    return function.with_body(tvm.s_tir.SBlockRealize([], True, root))


def _argument(name: str, declared: Any) -> Any:
    shape = [int(extent) for extent in declared.shape.values]
    return T.arg(name, T.buffer(shape, str(declared.dtype)))


def _whole(buffer: Any) -> Any:
    return buffer[tuple(slice(0, int(extent)) for extent in buffer.shape)]
