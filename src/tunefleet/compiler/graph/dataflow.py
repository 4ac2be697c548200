"""The calls of a prepared network and the tensors between them, and modules of
some of the calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import tvm_ffi

from tunefleet.compiler.graph.forms import direct
from tunefleet.compiler.graph.loops import name_of
from tunefleet.compiler.graph.tasks import normalized, task_id_of
from tunefleet.compiler.toolchain import load_tvm
from tunefleet.compiler.toolchain.programs import nbytes
from tunefleet.core.placement import Dataflow, Part, Tensor
from tunefleet.core.target import Target
from tunefleet.errors import JobError

tvm = load_tvm()
relax = tvm.relax

_CALL_TIR = tvm.ir.Op.get("relax.call_tir")
_RESHAPE = tvm.ir.Op.get("relax.reshape")

#: A tensor by the variable of what made it and its place among several, None where it is the only.
_Key = tuple[Any, int | None]


class NetworkFlow:
    """The dataflow of the first shape of a prepared module. Reshapes, tuples and their fields are
    other names of tensors: they take no time.

    Raises JobError for a network that does more than call programs, such as one of which a part
    stays in its source framework.
    """

    def __init__(self, mod: Any) -> None:
        self._mod = mod
        self._main = mod["main"]
        self._bindings: list[Any] = []
        self._names: dict[Any, Any] = {}
        for block in self._main.body.blocks:
            for binding in block.bindings:
                self._enter(binding)
        makers = [*self._main.params, *(binding.var for binding in self._bindings)]
        self._keys = [key for var in makers for key in _keys_of(var)]

    def _enter(self, binding: Any) -> None:
        value = binding.value
        if isinstance(value, relax.Call) and value.op == _CALL_TIR:
            self._bindings.append(binding)
        elif isinstance(value, _NAMES) or (isinstance(value, relax.Call) and value.op == _RESHAPE):
            self._names[binding.var] = value
        else:
            what = getattr(getattr(value, "op", None), "name", type(value).__name__)
            raise JobError(
                f"the network cannot be divided: it calls {what}", cure="tune it for one device"
            )

    def task_ids(self, target: Target) -> tuple[str, ...]:
        """The task of each call."""
        return self._of_programs(lambda program: task_id_of(program, target))

    def dataflow(self) -> Dataflow:
        """Each call is named by the hash of its program, which is the same for every target, or by
        the name of a program that has another form for some."""
        call_of = {binding.var: call for call, binding in enumerate(self._bindings)}
        readers: dict[_Key, dict[int, None]] = {key: {} for key in self._keys}
        for call, binding in enumerate(self._bindings):
            for key in self._read(binding.value.args[1]):
                readers[key][call] = None
        outputs = set(self._read(self._main.body.body))
        tensors = [
            Tensor(_bytes(_type_of(key)), call_of.get(key[0]), tuple(readers[key]), key in outputs)
            for key in self._keys
        ]
        return Dataflow(self._of_programs(_name), tuple(tensors))

    def module_of(self, part: Part) -> Any:
        """A module whose `main` takes the inputs of a part, and gives its outputs in a tuple, in
        the order of the part's."""
        params = {
            self._keys[n]: relax.Var(f"tensor{n}", _type_of(self._keys[n])) for n in part.inputs
        }
        builder = relax.BlockBuilder()
        programs: dict[Any, Any] = {}
        here: dict[_Key, Any] = dict(params)
        with builder.function("main", list(params.values())):
            with builder.dataflow():
                for call in part.calls:
                    binding = self._bindings[call]
                    program, arguments = binding.value.args[:2]
                    if program not in programs:
                        name = str(program.name_hint)
                        programs[program] = builder.add_func(self._mod[program], name)
                    fields = relax.Tuple([self._written(f, here) for f in arguments.fields])
                    keys = _keys_of(binding.var)
                    types = [_type_of(key) for key in keys]
                    var = builder.emit(relax.call_tir(programs[program], fields, types))
                    for key in keys:
                        here[key] = var if key[1] is None else relax.TupleGetItem(var, key[1])
                outputs = relax.Tuple([here[self._keys[n]] for n in part.outputs])
                result = builder.emit_output(outputs)
            builder.emit_func_output(result)
        return builder.finalize()

    def _of_programs(self, name: Callable[[Any], str]) -> tuple[str, ...]:
        """What `name` makes of the program of each call, once for each program."""
        called = [binding.value.args[0] for binding in self._bindings]
        names = {gvar: name(self._mod[gvar]) for gvar in dict.fromkeys(called)}
        return tuple(names[gvar] for gvar in called)

    def _read(self, value: Any) -> Iterator[_Key]:
        """The tensors that an expression is made of, constants left out."""
        if isinstance(value, relax.Tuple):
            for field in value.fields:
                yield from self._read(field)
        elif isinstance(value, relax.TupleGetItem):
            field = self._field(value)
            yield from [field] if isinstance(field, tuple) else self._read(field)
        elif isinstance(value, relax.Call):
            yield from self._read(value.args[0])
        elif isinstance(value, relax.Var):
            named = self._names.get(value)
            yield from _keys_of(value) if named is None else self._read(named)

    def _written(self, value: Any, here: Mapping[_Key, Any]) -> Any:
        """An argument in terms of the tensors that are `here`."""
        if isinstance(value, relax.TupleGetItem):
            field = self._field(value)
            return here[field] if isinstance(field, tuple) else self._written(field, here)
        if isinstance(value, relax.Call):
            return relax.op.reshape(self._written(value.args[0], here), value.args[1])
        if isinstance(value, relax.Var):
            named = self._names.get(value)
            return here[value, None] if named is None else self._written(named, here)
        return value

    def _field(self, value: Any) -> Any:
        """What a field of a tuple is: the tensor of a call, or the expression in a tuple."""
        source = value.tuple_value
        while source in self._names:
            source = self._names[source]
        is_tuple = isinstance(source, relax.Tuple)
        return source.fields[value.index] if is_tuple else (source, int(value.index))


_NAMES = (relax.Var, relax.Tuple, relax.TupleGetItem)


def _keys_of(var: Any) -> list[_Key]:
    """The tensors that a variable is."""
    if isinstance(var.ty, relax.TupleType):
        return [(var, index) for index in range(len(var.ty.fields))]
    return [(var, None)]


def _type_of(key: _Key) -> Any:
    var, index = key
    return var.ty if index is None else var.ty.fields[index]


def _bytes(kind: Any) -> int:
    return nbytes([int(extent) for extent in kind.shape.values], str(kind.dtype))


def _name(program: Any) -> str:
    name = name_of(program)
    if name is not None:
        return name
    return f"{tvm_ffi.structural_hash(normalized(direct(program))) & (2**64 - 1):016x}"
