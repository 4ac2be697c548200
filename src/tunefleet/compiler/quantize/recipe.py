"""Quantises an ONNX network with ONNX Runtime's quantiser, and measures the loss."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from tunefleet.compiler.frontends.blame import gist, said_by_runtime
from tunefleet.compiler.frontends.spec import network_bytes
from tunefleet.compiler.quantize.biases import correct
from tunefleet.compiler.quantize.calibration import Input, SampleInputs
from tunefleet.compiler.quantize.losses import Outputs, finite, losses_of, outputs_of
from tunefleet.compiler.quantize.smoothing import smooth
from tunefleet.core.precision import INT8, OutputLoss, Precision
from tunefleet.errors import InputError, raise_mistake
from tunefleet.system.progress import working_on
from tunefleet.system.scratch import scratch_folder

Array = NDArray[Any]

#: Increase it when the result for a network changes: earlier files are then created again.
RECIPE = 3
#: The first version with scales per channel.
_OLDEST_OPSET = 13
_PRODUCTS = ["Conv", "Gemm", "MatMul"]
#: A network with any of the former operators, or with many of the latter per product, is quantised
#: in its products only: a classifier may start with a product by scales and end in a sigmoid.
_IN_FLOATS = frozenset({"LayerNormalization", "SkipLayerNormalization", "Gelu", "Erf"})
_FUNCTIONS = frozenset(
    {"BatchNormalization", "Div", "Elu", "Exp", "HardSigmoid", "HardSwish", "InstanceNormalization",
     "Mish", "Mul", "Pow", "Selu", "Sigmoid", "Softplus", "Sqrt", "Swish", "Tanh"}
)  # fmt: skip
_SHARE = 0.25
#: The percentile of the narrower of two activation ranges; the other covers everything. Outliers
#: may cost the precision of the rest, or be essential: the samples decide.
_KEPT = 99.999
#: The full range is used only if it lowers the loss to this share: samples are never outside of it.
_CLEARLY = 0.8
_USED_WITH = "calibrate with realistic inputs of the network"
#: The size limit of protobuf.
_MOST_BYTES = 1 << 30


def inputs_of(model: onnx.ModelProto) -> list[Input]:
    """The inputs of a network, without weights."""
    weights = {tensor.name for tensor in model.graph.initializer}
    found = []
    for value in model.graph.input:
        if value.name not in weights:
            tensor = value.type.tensor_type
            dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
            extents = tuple(int(d.dim_value) if d.dim_value > 0 else None for d in tensor.shape.dim)
            found.append(Input(value.name, extents, str(dtype)))
    return found


def check_floats(model: onnx.ModelProto, what: str) -> None:
    """Raises InputError for a network that is already quantised, or has nothing to quantise."""
    operators = {node.op_type for node in model.graph.node}
    quantized = sorted(
        name
        for name in operators
        if name in ("QuantizeLinear", "DequantizeLinear", "QGemm", "QAttention")
        or name.startswith(("QLinear", "DynamicQuantize"))
        or "Integer" in name
    )
    if quantized:
        raise InputError(
            f"{what} is already quantised: it has {quantized[0]}", cure="leave out --precision"
        )
    if not operators & set(_PRODUCTS):
        raise InputError(
            f"{what} has no convolution and no matrix product to quantise",
            cure="leave out --precision",
        )


def quantize(source: Path, target: Path, samples: Sequence[SampleInputs], what: str) -> Precision:
    """Writes the network `source` in 8-bit integers to `target`: activations in uint8, with ranges
    with or without outliers, whichever loses less; weights in int8 with a scale per channel; with
    bias correction if that loses less. Networks without attention that consist of sums and
    rectifiers are quantised completely. In others only the inputs of products are quantised, after
    moving outliers into the weights.

    Raises InputError, starting with `what`, if ONNX Runtime cannot quantise the network, or cannot
    run it with the samples.
    """
    import onnxruntime
    from onnxruntime import quantization as ort

    before = _outputs_in_floats(source, samples, what)
    large = network_bytes(source) > _MOST_BYTES
    with scratch_folder("quantize") as folder:
        plain = Path(folder, "plain.onnx")
        try:
            # Its intermediate files would look for external weights next to them.
            whole = source if large else _in_one_file(source, Path(folder, "whole.onnx"))
            ort.quant_pre_process(
                whole, plain, skip_symbolic_shape=True, save_as_external_data=large
            )
            model = onnx.load(plain, load_external_data=False)
            plain, stacked = _newer(plain, model), _stacked(model)
            alone = _in_products_alone(model.graph)
            if alone:
                smoothed = Path(folder, "smoothed.onnx")
                smooth(plain, smoothed, samples, large)
                plain = smoothed
            drafts = []
            for method in (ort.CalibrationMethod.Percentile, ort.CalibrationMethod.MinMax):
                draft = Path(folder, method.name, target.name)
                draft.parent.mkdir()
                _write(plain, draft, samples, method, alone, stacked, large)
                drafts.append((losses_of(before, outputs_of(draft, samples)), draft))
            without, (all_of_it, _) = drafts
            better = _lost(all_of_it) < _CLEARLY * _lost(without[0])
            losses, best = drafts[1] if better else without
            corrected = Path(folder, "corrected", target.name)
            corrected.parent.mkdir()
            if correct(plain, best, corrected, samples, large):
                others = losses_of(before, outputs_of(corrected, samples))
                if _lost(others) < _lost(losses):
                    losses, best = others, corrected
            for file in best.parent.iterdir():
                shutil.move(file, target.parent / file.name)
        except Exception as exc:
            raise_mistake(exc)
            if not all(map(finite, before)):
                reason = "it computes NaN or infinite numbers from the calibration data"
                raise InputError(f"{what}: {reason}", cure=_USED_WITH) from exc
            raise InputError(
                f"{what}: ONNX Runtime cannot quantise it: {_reason(exc, target)}",
                cure=f"{_USED_WITH}, or quantise it with its own tool and give the result",
            ) from exc
    quantizer = f"ONNX Runtime {onnxruntime.__version__}"
    return Precision(INT8, quantizer, len(samples), losses)


def _write(
    source: Path,
    target: Path,
    samples: Sequence[SampleInputs],
    method: Any,
    alone: bool,
    stacked: Sequence[str],
    large: bool,
) -> None:
    """Quantise the network `source` with ranges by `method`; products `alone`, or all of it."""
    from onnxruntime import quantization as ort

    ort.quantize_static(
        source,
        target,
        _Reader(samples),
        quant_format=ort.QuantFormat.QDQ,
        op_types_to_quantize=_PRODUCTS if alone else None,
        per_channel=True,
        activation_type=ort.QuantType.QUInt8,
        weight_type=ort.QuantType.QInt8,
        use_external_data_format=large,
        calibrate_method=method,
        extra_options={
            "CalibPercentile": _KEPT,
            # One sample at a time: the outputs of all layers for all samples take gigabytes.
            "CalibStridedMinMax": 1,
            # The remaining operators are in floats.
            "OpTypesToExcludeOutputQuantization": _PRODUCTS if alone else [],
            "TensorQuantOverrides": {name: [{}] for name in stacked},
        },
    )


def _lost(losses: Sequence[OutputLoss]) -> float:
    """The mean loss of all outputs, each at most 1."""
    return float(np.mean([min(1.0, loss.relative_error) for loss in losses]))


def _in_one_file(source: Path, path: Path) -> Path:
    onnx.save(onnx.load(source), path)
    return path


def _in_products_alone(graph: onnx.GraphProto) -> bool:
    """Whether only the inputs of products are quantised: in networks with attention, and with
    functions between products that are inaccurate in 8 bits. These functions take little time, and
    in floats they lose half as much."""
    weights = {tensor.name for tensor in graph.initializer}
    operators = [node.op_type for node in graph.node]
    attention = any(
        node.op_type == "MatMul" and weights.isdisjoint(node.input) for node in graph.node
    )
    functions, products = (sum(o in kinds for o in operators) for kinds in (_FUNCTIONS, _PRODUCTS))
    return attention or not _IN_FLOATS.isdisjoint(operators) or functions > _SHARE * products


def _stacked(model: onnx.ModelProto) -> list[str]:
    """Weights of stacked matrices, which get one scale: ONNX Runtime's quantiser would use the rows
    of each as channels, and its products do not support scales of stacked matrices."""
    ranks = {tensor.name: len(tensor.dims) for tensor in model.graph.initializer}
    products = (node for node in model.graph.node if node.op_type == "MatMul")
    return sorted({node.input[1] for node in products if ranks.get(node.input[1], 0) > 2})


def _newer(path: Path, model: onnx.ModelProto) -> Path:
    """The file, converted to a version with scales per channel if necessary."""
    version = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 1)
    if version < _OLDEST_OPSET:
        whole = onnx.version_converter.convert_version(onnx.load(path), _OLDEST_OPSET)
        onnx.save(whole, path)
    return path


class _Reader:
    """A calibration data reader for ONNX Runtime's quantiser."""

    def __init__(self, samples: Sequence[SampleInputs]) -> None:
        self._all = samples
        self._samples: Iterator[SampleInputs] = iter(samples)

    def __len__(self) -> int:
        return len(self._all)

    def set_range(self, start_index: int, end_index: int) -> None:
        self._samples = iter(self._all[start_index:end_index])

    def get_next(self) -> SampleInputs | None:
        working_on("a sample of the calibration")
        return next(self._samples, None)

    def __iter__(self) -> Iterator[SampleInputs]:
        return self._samples

    def __next__(self) -> SampleInputs:
        working_on("a sample of the calibration")
        return next(self._samples)


def _outputs_in_floats(source: Path, samples: Sequence[SampleInputs], what: str) -> Outputs:
    try:
        return outputs_of(source, samples)
    except Exception as exc:
        raise_mistake(exc)
        raise InputError(
            f"{what}: ONNX Runtime cannot run it with the calibration data: {_reason(exc, source)}",
            cure=_USED_WITH,
        ) from exc


def _reason(exc: Exception, path: Path) -> str:
    """The reason in one line; ONNX Runtime's quantiser raises errors of any type."""
    return said_by_runtime(exc, path) if "[ONNXRuntimeError]" in str(exc) else gist(exc)
