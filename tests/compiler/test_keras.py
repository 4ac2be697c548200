"""Keras models: read without their code, with the shapes asked for."""

import numpy as np
import pytest

from tunefleet.compiler.frontends import ImportRequest, load_network
from tunefleet.compiler.frontends.keras_ import prefer_torch
from tunefleet.core.shapes import ShapeRequest
from tunefleet.errors import InputError

pytest.importorskip("torch", reason="needs tunefleet[keras]")
prefer_torch("these tests")
keras = pytest.importorskip("keras", reason="needs tunefleet[keras]")

pytestmark = [
    pytest.mark.tvm,
    pytest.mark.skipif(keras.config.backend() != "torch", reason="Keras is not on torch here"),
    # Keras's own, as it saves a model of torch tensors.
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
]


def _saved(folder, rows=8, lambda_layer=False):
    image = keras.Input((rows, 8, 3), name="image")
    scale = keras.Input((1,), name="scale")
    x = keras.layers.Conv2D(4, 3, strides=2, padding="same", name="conv")(image)
    x = keras.layers.BatchNormalization()(x)
    x = keras.layers.Lambda(lambda t: t)(x) if lambda_layer else keras.layers.ReLU()(x)
    pooled = keras.layers.GlobalAveragePooling2D()(x)
    outputs = {"logits": keras.layers.Dense(2)(pooled), "scaled": pooled * scale}
    path = folder / "network.keras"
    keras.Model({"image": image, "scale": scale}, outputs).save(path)
    return str(path)


def test_a_network_computes_what_keras_computes(tmp_path):
    from tunefleet.compiler.toolchain import load_tvm

    tvm = load_tvm()
    path = _saved(tmp_path)
    network = load_network(path)
    assert [spec.name for spec in network.info.inputs] == ["image", "scale"]
    machine = tvm.relax.VirtualMachine(tvm.compile(network.mod, "llvm"), tvm.cpu())
    found = machine["main"](*[tvm.runtime.tensor(x) for x in network.example_inputs])
    given = dict(zip(("image", "scale"), network.example_inputs, strict=True))
    expected = keras.saving.load_model(path)(given)
    for name, output, reference in zip(
        ("logits", "scaled"), found, network.reference(network.example_inputs), strict=True
    ):
        value = expected[name].detach().numpy()
        np.testing.assert_allclose(reference, value, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(output.numpy(), value, rtol=1e-4, atol=1e-5)


def test_a_free_batch_is_one_and_given_shapes_are_taken(tmp_path):
    path = _saved(tmp_path, rows=None)
    network = load_network(
        path,
        ImportRequest(tmp_path, ShapeRequest.of({"image": (2, 6, 8, 3), "scale": (2, 1)}.items())),
    )
    assert [spec.shape for spec in network.info.inputs] == [(2, 6, 8, 3), (2, 1)]
    assert [spec.shape for spec in network.info.outputs] == [(2, 2), (2, 4)]


def test_free_dimensions_are_listed(tmp_path):
    path = _saved(tmp_path, rows=None)
    with pytest.raises(InputError, match=r"free dimensions: image\.1"):
        load_network(path)


def test_python_code_is_refused(tmp_path):
    with pytest.raises(InputError, match="Python code"):
        load_network(_saved(tmp_path, lambda_layer=True))


def test_a_damaged_file_is_refused(tmp_path):
    path = tmp_path / "network.keras"
    path.write_bytes(b"no archive")
    with pytest.raises(InputError, match="not a readable Keras model"):
        load_network(path)
