"""A small network as a file, for tests to which it does not matter what they tune: PyTorch, which
takes seconds to export a network, is not needed for it."""

from __future__ import annotations

from pathlib import Path


def write_small(path: Path, channels: int = 8) -> Path:
    """A convolution of images of 16 by 16 pixels, in ONNX: three tasks. Returns `path`."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weights = np.random.default_rng(1).standard_normal((channels, 3, 3, 3), np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w"], ["features"], pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["features"], ["y"]),
        ],
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 16, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, channels, 16, 16])],
        [numpy_helper.from_array(weights, "w")],
    )
    opset = helper.make_opsetid("", 17)
    network = helper.make_model(graph, opset_imports=[opset], ir_version=8)
    onnx.save(network, str(path))
    return path


def small_beside(home: Path) -> str:
    """The same in a file beside a home. A command takes half as long with it as with the smallest
    network of the zoo."""
    return str(write_small(home.with_name(f"{home.name}.onnx")))
