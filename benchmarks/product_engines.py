"""Products of matrices by the engines that people run them in, one thread each (`intrinsics.py`).

In 8 bits they are of uint8 and int8, which is what instructions take.
ONNX Runtime runs MatMulInteger; PyTorch its quantised linear layer (its own engine for x86) and, in
bfloat16, oneDNN's product; OpenVINO a product of what was quantised before, by its hint bf16 of
float32, which it rounds in each call.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Engines = dict[str, Callable[[], Any]]


def engines(kind: str, shape: Sequence[int]) -> Engines:
    """A product of rows, columns and depth by each engine that is installed."""
    rows, columns, depth = shape
    rng = np.random.default_rng(0)
    if kind == "bfloat16":
        data = rng.standard_normal((rows, depth)).astype("float32")
        weight = rng.standard_normal((depth, columns)).astype("float32")
        return _pytorch_bfloat16(data, weight) | _openvino(data, weight)
    data = rng.integers(0, 255, (rows, depth), "uint8", endpoint=True)
    weight = rng.integers(-127, 127, (depth, columns), "int8", endpoint=True)
    return _onnxruntime(data, weight) | _pytorch(data, columns) | _openvino(data, weight)


def _pytorch_bfloat16(data: Any, weight: Any) -> Engines:
    import torch

    torch.set_num_threads(1)
    left, right = torch.from_numpy(data).bfloat16(), torch.from_numpy(weight).bfloat16()
    return {"PyTorch": lambda: left @ right}


def _pytorch(data: Any, columns: int) -> Engines:
    import torch

    torch.set_num_threads(1)
    make: Any = torch.ao.nn.quantized.Linear
    layer = make(data.shape[1], columns, bias_=False)
    quantised = torch.quantize_per_tensor(torch.from_numpy(data).float(), 1.0, 0, torch.quint8)
    return {"PyTorch": lambda: layer(quantised)}


def _onnxruntime(data: Any, weight: Any) -> Engines:
    import onnx
    import onnxruntime

    helper = onnx.helper
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["a", "w"], ["y"])],
        "product",
        [helper.make_tensor_value_info("a", onnx.TensorProto.UINT8, data.shape)],
        [helper.make_tensor_value_info("y", onnx.TensorProto.INT32, None)],
        [onnx.numpy_helper.from_array(weight, "w")],
    )
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return {"ONNX Runtime": lambda: session.run(None, {"a": data})}


def _openvino(data: Any, weight: Any) -> Engines:
    if importlib.util.find_spec("openvino") is None:
        return {}
    import openvino
    from openvino import opset13 as op

    given = op.parameter(data.shape, data.dtype)
    if data.dtype == np.uint8:
        # Only networks with such an operator are computed in integers.
        ends = [op.constant(np.float32(end)) for end in (0, 255, 0, 255)]
        left = op.fake_quantize(op.convert(given, "f32"), *ends, 256)
        scale = op.constant(np.full((weight.shape[1], 1), 0.01, np.float32))
        right = op.multiply(op.convert(op.constant(weight.T.copy()), "f32"), scale)
    else:
        left, right = given, op.constant(weight.T.copy())
    model = openvino.Model([op.matmul(left, right, False, True)], [given])
    settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": 1}
    if data.dtype != np.uint8:
        settings["INFERENCE_PRECISION_HINT"] = "bf16"
    request = openvino.Core().compile_model(model, "CPU", settings).create_infer_request()
    request.set_input_tensor(openvino.Tensor(data, shared_memory=True))
    return {"OpenVINO": lambda: request.infer(share_outputs=True)}
