"""Networks are kept by their content, and read from there."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from tests.fleet.jobs import SETTINGS
from tests.networks import write_small
from tests.runs.served import served
from tests.store.values import make_spec
from tunefleet import BenchmarkContext, tune
from tunefleet.artifacts.blobs import LostBlobError, open_blobs
from tunefleet.compiler.frontends.keras_ import prefer_torch
from tunefleet.compiler.frontends.spec import named_as_given, network_digest, network_files
from tunefleet.core.home import Home
from tunefleet.core.importing import DEFAULT_IMPORT, ImportOptions, InputFile
from tunefleet.core.job import JobState
from tunefleet.errors import InputError
from tunefleet.runs.disk import disk_usage, prune
from tunefleet.runs.request import source_of
from tunefleet.runs.submitting import server_of
from tunefleet.runs.tuning import Tuned
from tunefleet.stages.place import source_here
from tunefleet.store import each_job, open_store


@pytest.fixture
def network(tmp_path: Path) -> Path:
    return write_small(tmp_path / "net.onnx")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    (tmp_path / "home").mkdir()
    return Home(tmp_path / "home")


@pytest.fixture
def context(home: Home) -> BenchmarkContext:
    return BenchmarkContext("cpu", threads=1, home=home.root)


def test_a_network_is_read_from_its_copy(
    network: Path, home: Home, context: BenchmarkContext
) -> None:
    before = network.read_bytes()
    source = source_of(network, DEFAULT_IMPORT, context)
    network.write_bytes(b"another one")
    assert not Path(source.spec).is_absolute()
    kept = Path(home.resolved(source).spec)
    assert (kept.name, before) == ("net.onnx", kept.read_bytes())


def test_the_same_content_is_kept_once_and_a_damaged_copy_is_made_again(
    network: Path, home: Home, context: BenchmarkContext
) -> None:
    first = source_of(network, DEFAULT_IMPORT, context)
    kept = Path(home.resolved(first).spec)
    kept.write_bytes(b"damaged")
    assert first == source_of(network, DEFAULT_IMPORT, context)
    assert network.read_bytes() == kept.read_bytes()
    assert len(list(home.networks.iterdir())) == 1


def test_names_and_digests_are_those_of_the_original(
    network: Path, home: Home, context: BenchmarkContext
) -> None:
    source = source_of(network, DEFAULT_IMPORT, context)
    assert (source.name, source.content) == ("net", network_digest(network))
    assert source.content == network_digest(home.resolved(source).spec)


def test_a_folder_is_kept_with_its_weights_and_configurations(
    tmp_path: Path, home: Home, context: BenchmarkContext
) -> None:
    folder = tmp_path / "bert"
    (folder / "more").mkdir(parents=True)
    for name in ("config.json", "model.safetensors", "generation_config.json", "more/x.json"):
        (folder / name).write_text(f"{{}} of {name}")
    (tmp_path / "secret").write_text("of its user")
    (folder / "vocab.json").symlink_to(tmp_path / "secret")
    source = source_of(folder, DEFAULT_IMPORT, context)
    kept = Path(home.resolved(source).spec)
    assert {"config.json", "model.safetensors", "generation_config.json"} == {
        path.name for path in kept.iterdir()
    }
    assert ("bert", source.content) == (kept.name, network_digest(kept))


def test_weights_beside_a_file_are_kept_with_it(
    tmp_path: Path, network: Path, home: Home, context: BenchmarkContext
) -> None:
    import onnx

    (tmp_path / "apart" / "weights").mkdir(parents=True)
    apart = tmp_path / "apart" / "net.onnx"
    onnx.save(
        onnx.load(network),
        apart,
        save_as_external_data=True,
        location="weights/w.data",
        size_threshold=0,
    )
    source = source_of(apart, DEFAULT_IMPORT, context)
    kept = Path(home.resolved(source).spec)
    assert {"net.onnx", "weights/w.data"} == set(network_files(kept)[1])
    assert source.content == network_digest(kept)


def test_what_was_kept_and_is_damaged_is_not_read(
    network: Path, home: Home, context: BenchmarkContext
) -> None:
    source = source_of(network, DEFAULT_IMPORT, context)
    assert source_here(home, source) == home.resolved(source)
    Path(home.resolved(source).spec).write_bytes(b"damaged")
    with pytest.raises(LostBlobError, match="was damaged"):
        source_here(home, source)


def test_what_an_earlier_version_kept_is_read_and_removed_with_its_job(
    network: Path, home: Home, context: BenchmarkContext
) -> None:
    """Its names have half as many digits, and are those of no blobs."""
    place = home.networks / ("0123456789abcdef" * 2)
    place.mkdir(parents=True)
    kept = Path(shutil.copy(network, place))
    os.utime(place, (1.0, 1.0))
    before = replace(
        source_of(network, DEFAULT_IMPORT, context), spec=f"networks/{place.name}/net.onnx"
    )
    assert str(kept) == source_here(home, before).spec
    spec = replace(make_spec("before"), source=before)
    with closing(open_store(home.root)) as store:
        store.jobs.open(spec, job_id="before", now=1.0)
        prune(home.root)
        assert network.read_bytes() == kept.read_bytes()
        store.jobs.finish("before", JobState.FAILED, {})
    prune(home.root)
    assert not place.exists()


@pytest.mark.parametrize("digits", [32, 64])
def test_an_error_names_a_network_as_its_user_does(home: Home, digits: int) -> None:
    place = home.networks / ("0" * digits) / "net.onnx"
    with (
        pytest.raises(InputError, match=r"^net\.onnx has no free dimension n; give") as e,
        named_as_given(),
    ):
        raise InputError(f"{place} has no free dimension n", cure=f"give another than {place}")
    assert str(home.root) not in str(e.value)


def test_given_inputs_are_kept_too(
    network: Path, home: Home, context: BenchmarkContext, tmp_path: Path
) -> None:
    inputs = tmp_path / "x.npz"
    inputs.write_bytes(b"numbers")
    content = sha256(b"numbers").hexdigest()
    options = ImportOptions(inputs=(InputFile(str(inputs), content),))
    source = source_of(network, options, context)
    (file,) = home.resolved(source).options.inputs
    Path(file.path).write_bytes(b"")
    assert source == source_of(network, options, context)
    inputs.unlink()
    assert Path(file.path).read_bytes() == b"numbers"
    assert not Path(source.options.inputs[0].path).is_absolute()


def test_what_a_user_named_before_is_read_where_it_is(home: Home, network: Path) -> None:
    """As jobs of earlier versions have it."""
    zoo = source_of("zoo:tiny_cnn", DEFAULT_IMPORT, BenchmarkContext("cpu", home=home.root))
    assert zoo == home.resolved(zoo)
    before = replace(zoo, spec=str(network))
    assert before == home.resolved(before)


def test_a_reference_is_opened_where_the_network_of_the_job_lies(home: Home) -> None:
    left = {"kind": "onnx", "path": f"networks/{'0' * 32}/a.onnx", "zeros": []}
    spec = f"networks/{'1' * 32}/b.onnx"
    assert str(home.root / spec) == home.absolute_reference(left, spec)["path"]
    before = {"kind": "onnx", "path": "/models/a.onnx"}
    assert before == home.absolute_reference(before, spec)


def left_to_a_server(network: Path, home: Home, context: BenchmarkContext) -> Tuned:
    """What comes of a job whose user removes the network while it waits."""
    with served(home.root), closing(open_store(home.root)) as store:
        assert server_of(home.root) is not None
        (left,) = tune([network], trials=4, settings=SETTINGS, context=context, detach=True)
        remove = shutil.rmtree if network.is_dir() else Path.unlink
        remove(network)
        source = store.jobs.get(left.job).spec.source
        assert source is not None
        kept = Path(home.resolved(source).spec)
        (outcome,) = tune([kept], trials=4, settings=SETTINGS, context=context)
        assert outcome.job == left.job
        assert [job.state for job in each_job(store.jobs)] == [JobState.SUCCEEDED]
    assert outcome.result is not None
    assert "source" in [baseline.kind for baseline in outcome.result.baselines]
    return outcome


@pytest.mark.tvm
@pytest.mark.slow
def test_a_job_that_is_left_to_a_server_needs_no_file_of_its_user(
    network: Path, home: Home, context: BenchmarkContext
) -> None:
    outcome = left_to_a_server(network, home, context)
    assert outcome.result is not None
    dump = "\n".join(sqlite3.connect(home.store).iterdump())
    assert str(network.parent) not in dump.replace(outcome.result.artifact or "-", "")
    used = {part.name: part for part in disk_usage(home.root)}["networks"]
    assert used.size > 0
    (kept,) = open_blobs(home.networks).names()
    os.utime(home.networks / kept, (1.0, 1.0))
    prune(home.root)
    assert [kept] == open_blobs(home.networks).names()  # its artifact is measured beside it
    shutil.rmtree(outcome.result.artifact or "")
    prune(home.root)
    assert open_blobs(home.networks).names() == []


@pytest.mark.tvm
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Keras and TensorFlow warn of themselves as they save
@pytest.mark.parametrize("kind", ["keras", "saved_model"])
def test_a_file_of_keras_and_a_folder_of_tensorflow_are_kept_too(
    kind: str, tmp_path: Path, home: Home, context: BenchmarkContext
) -> None:
    left_to_a_server(_MAKERS[kind](tmp_path), home, context)


def _keras_file(folder: Path) -> Path:
    pytest.importorskip("torch", reason="needs tunefleet[keras]")
    prefer_torch("these tests")
    keras = pytest.importorskip("keras", reason="needs tunefleet[keras]")
    if keras.config.backend() != "torch":
        pytest.skip("Keras is not on torch here")
    image = keras.Input((8, 8, 3), name="image")
    convolved = keras.layers.Conv2D(4, 3, activation="relu")(image)
    keras.Model(image, convolved).save(folder / "network.keras")
    return folder / "network.keras"


def _saved_model(folder: Path) -> Path:
    pytest.importorskip("tflite", reason="needs tunefleet[tensorflow]")
    prefer_torch("these tests")
    tf = pytest.importorskip("tensorflow", reason="needs tunefleet[tensorflow]")
    network = tf.Module()
    network.kernel = tf.Variable(tf.ones((3, 3, 3, 4)))
    given = [tf.TensorSpec((1, 8, 8, 3), tf.float32, "image")]
    serve = tf.function(
        lambda image: {"y": tf.nn.conv2d(image, network.kernel, 1, "SAME")}, input_signature=given
    )
    path = folder / "network"
    tf.saved_model.save(network, str(path), signatures=serve.get_concrete_function())
    return path


_MAKERS = {"keras": _keras_file, "saved_model": _saved_model}
