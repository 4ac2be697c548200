"""TensorFlow SavedModels: the signature for serving, and nothing else of the folder."""

import numpy as np
import pytest

from tunefleet.compiler.frontends import ImportRequest, load_network, network_digest, network_name
from tunefleet.compiler.frontends.keras_ import prefer_torch
from tunefleet.core.shapes import ShapeRequest
from tunefleet.errors import InputError

pytest.importorskip("tflite", reason="needs tunefleet[tensorflow]")
prefer_torch("these tests")
tf = pytest.importorskip("tensorflow", reason="needs tunefleet[tensorflow]")

# TensorFlow warns of itself as it saves a model.
pytestmark = [pytest.mark.tvm, pytest.mark.filterwarnings("ignore")]


class _Network(tf.Module):  # type: ignore[name-defined]
    def __init__(self):
        rng = np.random.default_rng(0)
        self.kernel = tf.Variable(rng.standard_normal((3, 3, 3, 4)).astype("float32"))

    def serve(self, image, scale):
        y = tf.nn.relu(tf.nn.conv2d(image, self.kernel, 2, "SAME"))
        return {"scaled": y * scale, "mean": tf.reduce_mean(y, [1, 2])}


def _saved(folder, rows=8, serve=None, dtype=tf.float32):
    network = _Network()
    specs = [
        tf.TensorSpec((None, rows, 8, 3), dtype, "image"),
        tf.TensorSpec((), tf.float32, "scale"),
    ]
    function = tf.function(serve or network.serve, input_signature=specs)
    path = folder / "network"
    tf.saved_model.save(network, str(path), signatures=function.get_concrete_function())
    return str(path)


def test_a_network_computes_what_tensorflow_computes(tmp_path):
    from tunefleet.compiler.toolchain import load_tvm

    tvm = load_tvm()
    path = _saved(tmp_path)
    network = load_network(path)
    assert [spec.name for spec in network.info.inputs] == ["image", "scale"]
    assert [spec.name for spec in network.info.outputs] == ["mean", "scaled"]
    machine = tvm.relax.VirtualMachine(tvm.compile(network.mod, "llvm"), tvm.cpu())
    found = machine["main"](*[tvm.runtime.tensor(x) for x in network.example_inputs])
    image, scale = network.example_inputs
    expected = tf.saved_model.load(path).signatures["serving_default"](image=image, scale=scale)
    for name, output, reference in zip(
        ("mean", "scaled"), found, network.reference(network.example_inputs), strict=True
    ):
        value = expected[name].numpy()
        np.testing.assert_allclose(reference, value, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(output.numpy(), value, rtol=1e-4, atol=1e-5)


def test_a_free_batch_is_one_and_given_shapes_are_taken(tmp_path):
    path = _saved(tmp_path, rows=None)
    network = load_network(
        path, ImportRequest(tmp_path, ShapeRequest.of({"image": (2, 6, 8, 3)}.items()))
    )
    assert [spec.shape for spec in network.info.outputs] == [(2, 4), (2, 3, 4, 4)]
    with pytest.raises(InputError, match=r"free dimensions: image\.1"):
        load_network(path)


def test_a_folder_has_a_name_and_a_digest_of_its_graph_and_variables(tmp_path):
    path = _saved(tmp_path)
    before = network_digest(path)
    (variables,) = (tmp_path / "network" / "variables").glob("variables.data*")
    assert network_name(path) == "network"
    variables.write_bytes(variables.read_bytes()[:-1] + b"x")
    assert network_digest(path) != before


def test_a_network_that_touches_files_is_refused(tmp_path):
    def serve(image, scale):
        tf.io.write_file(str(tmp_path / "written"), tf.strings.as_string(scale))
        return {"y": image * scale}

    with pytest.raises(InputError, match=r"files.*WriteFile"):
        load_network(_saved(tmp_path, serve=serve))
    assert not (tmp_path / "written").exists()


def test_inputs_that_are_no_numbers_are_refused(tmp_path):
    def serve(image, scale):
        return {"y": tf.cast(tf.strings.length(image), tf.float32) * scale}

    with pytest.raises(InputError, match="image holds string"):
        load_network(_saved(tmp_path, serve=serve, dtype=tf.string))
