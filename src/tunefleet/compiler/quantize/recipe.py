"""An ONNX network in floats quantised by ONNX Runtime's own quantiser, and what that loses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from tunefleet.compiler.frontends.blame import gist, said_by_runtime
from tunefleet.compiler.frontends.spec import network_bytes
from tunefleet.compiler.quantize.calibration import Input, Sample
from tunefleet.compiler.quantize.smoothing import smooth
from tunefleet.core.precision import INT8, OutputLoss, Precision
from tunefleet.errors import InputError, raise_mistake
from tunefleet.system.scratch import scratch_folder

Array = NDArray[Any]

#: Raise it when what is made of a network changes: files of before are made again.
RECIPE = 2
#: Scales by channel came with this version.
_OLDEST_OPSET = 13
_PRODUCTS = ["Conv", "Gemm", "MatMul"]
#: With any of these, or with a product of two activations, a network is one of those whose other
#: operators lose much in 8 bits and take no time.
_IN_FLOATS = frozenset({"LayerNormalization", "SkipLayerNormalization", "Gelu", "Erf"})
#: Per cent of an activation that its range holds: a few outliers would cost the rest its digits.
_KEPT = 99.999
_USED_WITH = "calibrate with inputs that the network is used with"
#: protobuf holds less than this.
_MOST_BYTES = 1 << 30


def inputs_of(model: onnx.ModelProto) -> list[Input]:
    """The inputs of a network that are not weights."""
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
    """Raises InputError for a network that cannot be quantised: it is, or is of old operators."""
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
            f"{what} is quantised already: it has {quantized[0]}", cure="leave out --precision"
        )
    if not operators & set(_PRODUCTS):
        raise InputError(
            f"{what} has no convolution and no matrix product, which int8 is for",
            cure="leave out --precision",
        )


def quantize(source: Path, target: Path, samples: Sequence[Sample], what: str) -> Precision:
    """Writes the network of `source` in 8-bit integers to `target`: activations in uint8, of a
    range without outliers, weights in int8 with a scale for each channel. Networks without
    attention are quantised throughout, others in what their products read alone, from which
    outliers are moved into weights before.

    Raises InputError, beginning with `what`, where ONNX Runtime cannot, or cannot run the network
    with the samples at all.
    """
    import onnxruntime
    from onnxruntime import quantization as ort

    before = _outputs_in_floats(source, samples, what)
    large = network_bytes(source) > _MOST_BYTES
    with scratch_folder("quantize") as folder:
        plain = Path(folder, "plain.onnx")
        try:
            # What it writes on the way would look for weights beside it.
            whole = source if large else _in_one_file(source, Path(folder, "whole.onnx"))
            ort.quant_pre_process(
                whole, plain, skip_symbolic_shape=True, save_as_external_data=large
            )
            model = onnx.load(plain, load_external_data=False)
            attention = _has_attention(model.graph)
            plain = _newer(plain, model)
            if attention:
                smoothed = Path(folder, "smoothed.onnx")
                smooth(plain, smoothed, samples, large)
                plain = smoothed
            ort.quantize_static(
                plain,
                target,
                _Reader(samples),
                quant_format=ort.QuantFormat.QDQ,
                op_types_to_quantize=_PRODUCTS if attention else None,
                per_channel=True,
                activation_type=ort.QuantType.QUInt8,
                weight_type=ort.QuantType.QInt8,
                use_external_data_format=large,
                calibrate_method=ort.CalibrationMethod.Percentile,
                extra_options={
                    "CalibPercentile": _KEPT,
                    # One sample after the other: what all layers make of all is gigabytes.
                    "CalibStridedMinMax": 1,
                    # What follows the products of attention is in floats.
                    "OpTypesToExcludeOutputQuantization": _PRODUCTS if attention else [],
                    "TensorQuantOverrides": {name: [{}] for name in _stacked(model)},
                },
            )
            losses = _losses(before, _outputs(target, samples))
        except Exception as exc:
            raise_mistake(exc)
            if any(map(_has_nan, before)):
                reason = "it makes NaN of the calibration data"
                raise InputError(f"{what}: {reason}", cure=_USED_WITH) from exc
            raise InputError(
                f"{what}: ONNX Runtime cannot quantise it: {_reason(exc, target)}",
                cure="quantise it with the tool that made it, and give the result",
            ) from exc
    quantizer = f"ONNX Runtime {onnxruntime.__version__}"
    return Precision(INT8, quantizer, len(samples), losses)


def _in_one_file(source: Path, path: Path) -> Path:
    onnx.save(onnx.load(source), path)
    return path


def _has_attention(graph: onnx.GraphProto) -> bool:
    weights = {tensor.name for tensor in graph.initializer}
    return any(
        node.op_type in _IN_FLOATS or (node.op_type == "MatMul" and weights.isdisjoint(node.input))
        for node in graph.node
    )


def _stacked(model: onnx.ModelProto) -> list[str]:
    """Weights that are several matrices, which get one scale: ONNX Runtime's quantiser takes the
    rows of each for its channels, and its products take no scales of stacked matrices."""
    ranks = {tensor.name: len(tensor.dims) for tensor in model.graph.initializer}
    products = (node for node in model.graph.node if node.op_type == "MatMul")
    return sorted({node.input[1] for node in products if ranks.get(node.input[1], 0) > 2})


def _newer(path: Path, model: onnx.ModelProto) -> Path:
    """The file in a version that has scales by channel."""
    version = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 1)
    if version < _OLDEST_OPSET:
        whole = onnx.version_converter.convert_version(onnx.load(path), _OLDEST_OPSET)
        onnx.save(whole, path)
    return path


class _Reader:
    """Samples one after the other, as ONNX Runtime's quantiser reads them."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        self._all = samples
        self._samples: Iterator[Sample] = iter(samples)

    def __len__(self) -> int:
        return len(self._all)

    def set_range(self, start_index: int, end_index: int) -> None:
        self._samples = iter(self._all[start_index:end_index])

    def get_next(self) -> Sample | None:
        return next(self._samples, None)

    def __iter__(self) -> Iterator[Sample]:
        return self._samples

    def __next__(self) -> Sample:
        return next(self._samples)


#: The outputs of each sample by name.
_Outputs = list[dict[str, Array]]


def _outputs_in_floats(source: Path, samples: Sequence[Sample], what: str) -> _Outputs:
    try:
        return _outputs(source, samples)
    except Exception as exc:
        raise_mistake(exc)
        raise InputError(
            f"{what}: ONNX Runtime cannot run it with the calibration data: {_reason(exc, source)}",
            cure=_USED_WITH,
        ) from exc


def _reason(exc: Exception, path: Path) -> str:
    """ONNX Runtime's quantiser, which is Python, raises whatever errors."""
    return said_by_runtime(exc, path) if "[ONNXRuntimeError]" in str(exc) else gist(exc)


def _has_nan(outputs: dict[str, Array]) -> bool:
    return any(a.dtype.kind == "f" and np.isnan(a).any() for a in outputs.values())


def _outputs(path: Path, samples: Sequence[Sample]) -> _Outputs:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return [dict(zip(names, session.run(names, dict(s)), strict=True)) for s in samples]


def _losses(before: _Outputs, after: _Outputs) -> tuple[OutputLoss, ...]:
    return tuple(
        output_loss(name, [(a[name], b[name]) for a, b in zip(before, after, strict=True)])
        for name in before[0]
    )


def output_loss(name: str, pairs: Sequence[tuple[Array, Array]]) -> OutputLoss:
    """The loss of one output, of what it is before and after in each sample."""
    before = np.concatenate([a.astype("float64").ravel() for a, _ in pairs])
    after = np.concatenate([b.astype("float64").ravel() for _, b in pairs])
    size = float(np.sqrt(np.mean(before**2)))
    error = float(np.sqrt(np.mean((after - before) ** 2))) / (size or 1.0)
    return OutputLoss(name, error, _top1(pairs))


def _top1(pairs: Sequence[tuple[Array, Array]]) -> float | None:
    """Rows of two or more floats are taken for scores of classes."""
    if not all(a.ndim == 2 and a.shape[1] > 1 and a.dtype.kind == "f" for a, _ in pairs):
        return None
    same = [a.argmax(1) == b.argmax(1) for a, b in pairs]
    return float(np.mean(np.concatenate(same)))
