"""The zoo: deterministic networks of the documented architectures, with sane activations."""

import hashlib
import importlib.util
import os
import subprocess
import sys

import pytest

from tunefleet import zoo
from tunefleet.errors import InputError, SetupError
from tunefleet.zoo.registry import _version, content_key

pytestmark = pytest.mark.frameworks

# Parameters at 1000 classes: torchvision's published counts (inception without its auxiliary
# head), timm's for vit_small. Language networks at a short sequence; counts as published for the
# configuration, without BERT's pooler.
PUBLISHED = {
    "bert_2l": ("size=8", 38_012_928),
    "bert_tiny": ("size=8", 34_805_760),
    "convnext_tiny": ("size=64", 28_589_128),
    "dcgan": ("size=64", 3_576_704),
    "densenet121": ("size=64", 7_978_856),
    "efficientnet_b0": ("size=64", 5_288_548),
    "inception_v3": ("size=96", 23_834_568),
    "mobilenet_v2": ("size=64", 3_504_872),
    "mobilenet_v3_large": ("size=64", 5_483_032),
    "mobilenet_v3_small": ("size=64", 2_542_856),
    "resnet18": ("size=64", 11_689_512),
    "resnet3d18": ("size=32", 33_371_472),
    "resnet50": ("size=64", 25_557_032),
    "resnext50_32x4d": ("size=64", 25_028_904),
    "shufflenet_v2": ("size=64", 2_278_604),
    "squeezenet": ("size=64", 1_235_496),
    "swin_tiny": ("size=224", 28_288_354),
    "tiny_cnn": ("classes=10", 2_634),
    "vit_small": ("size=224", 22_050_664),
}
# Made of layers that others have too: only counted, without allocating the weights.
COUNTED = {
    "bert_large": ("size=8", 334_092_288),
    "bert_medium": ("size=8", 182_937_600),
    "bert_small": ("size=8", 28_500_992),
    "distilbert": ("size=8", 66_362_880),
    "gpt2_medium": ("size=8", 354_823_168),
    "llama_tiny": ("size=8", 58_073_600),
    "mixer_small": ("size=224", 18_528_264),
    "resnet101": ("size=64", 44_549_160),
    "resnet34": ("size=64", 21_797_672),
    "t5_small": ("size=8", 35_330_816),
    "vgg11": ("size=64", 132_863_336),
    "vit_base": ("size=224", 86_567_656),
    "vit_tiny": ("size=224", 5_717_416),
    "wide_resnet50_2": ("size=64", 68_883_240),
}
LARGE = {
    "bert_base": ("size=8", 108_891_648),
    "gpt2_small": ("size=8", 124_439_808),
    "vgg16": ("size=64", 138_357_544),
}


def _fingerprint(spec):
    network = zoo.build(spec)
    digest = hashlib.sha256()
    for tensor in (*network.module.state_dict().values(), *network.example_inputs):
        digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()


def _check(name, query, parameters):
    import torch

    network = zoo.build(f"zoo:{name}?{query}")
    with torch.no_grad():
        output = network.module(*network.example_inputs)
    assert parameters == sum(p.numel() for p in network.module.parameters())
    assert not network.module.training
    assert len(network.input_names) == len(network.example_inputs)
    assert 0.05 < output.std().item() < 20
    assert output.isfinite().all()


@pytest.mark.parametrize(("name", "query", "parameters"), [(n, *e) for n, e in PUBLISHED.items()])
def test_network_has_the_published_size_and_outputs_of_order_one(name, query, parameters):
    _check(name, query, parameters)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "query", "parameters"), [(n, *e) for n, e in LARGE.items()])
def test_large_network_has_the_published_size_and_outputs_of_order_one(name, query, parameters):
    _check(name, query, parameters)


@pytest.mark.parametrize(("name", "query", "parameters"), [(n, *e) for n, e in COUNTED.items()])
def test_network_without_weights_has_the_published_size(name, query, parameters, monkeypatch):
    import torch

    from tunefleet.zoo import blocks

    monkeypatch.setattr(blocks, "_calibrate", lambda *args: None)
    with torch.device("meta"):
        network = zoo.build(f"zoo:{name}?{query}")
    assert parameters == sum(p.numel() for p in network.module.parameters())


def test_every_network_is_checked_above():
    assert sorted({**PUBLISHED, **COUNTED, **LARGE}) == list(zoo.names())


def test_equal_specifications_give_equal_networks_in_another_process():
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import test_zoo;"
        "print(test_zoo._fingerprint('zoo:tiny_cnn?seed=3'))"
    )
    here = __file__.rpartition("/")[0]
    there = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, here],
        capture_output=True,
        text=True,
        check=True,
    )
    assert _fingerprint("zoo:tiny_cnn?seed=3") == there.stdout.strip()


def test_seeds_differ():
    assert _fingerprint("zoo:tiny_cnn?seed=1") != _fingerprint("zoo:tiny_cnn?seed=2")


def test_building_leaves_the_random_state_of_the_caller_alone():
    import torch

    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    zoo.build("zoo:tiny_cnn")
    assert expected.tolist() == torch.rand(3).tolist()
    assert torch.is_grad_enabled()


def test_parameters_shape_the_network():
    import torch

    network = zoo.build("zoo:tiny_cnn?batch=2&size=24&classes=5")
    assert tuple(network.example_inputs[0].shape) == (2, 3, 24, 24)
    with torch.no_grad():
        assert tuple(network.module(*network.example_inputs).shape) == (2, 5)


def test_specification_is_canonical():
    spec = zoo.parse("resnet50?size=256&seed=0&batch=4")
    assert str(spec) == "zoo:resnet50?batch=4&size=256"
    assert spec == zoo.parse(str(spec))
    assert spec.label == "resnet50-batch4-size256"
    assert spec.complete == "zoo:resnet50?batch=4&classes=1000&seed=0&size=256"


def test_specification_without_changes_is_the_name():
    assert str(zoo.parse("zoo:tiny_cnn?batch=1")) == "zoo:tiny_cnn"


def test_names_are_sorted():
    assert sorted(zoo.names()) == list(zoo.names())


def test_specifications_are_read_without_torch():
    code = (
        "import sys; from tunefleet import zoo; zoo.names(); zoo.parse('zoo:resnet18?batch=2');"
        "sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_missing_package_is_named(monkeypatch):
    from importlib import metadata

    def version(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", version)
    _version.cache_clear()
    with pytest.raises(SetupError, match=r"needs torch.*pip install tunefleet\[zoo\]"):
        content_key(zoo.parse("zoo:tiny_cnn"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SetupError, match=r"needs torch.*pip install tunefleet\[zoo\]"):
        zoo.build("zoo:tiny_cnn")


@pytest.mark.parametrize("size", [31, 5000])
def test_values_outside_the_limits_are_refused_in_code_too(size):
    with pytest.raises(InputError, match=f"size={size} is too"):
        zoo.ZooSpec("resnet18", (("size", size),))


def test_a_package_that_fits_no_other_is_no_bug_of_ours(tmp_path):
    """torchvision of another version than torch: transformers loads it and does not load."""
    pytest.importorskip("transformers")
    (tmp_path / "torchvision").mkdir()
    broken = "raise RuntimeError('operator torchvision::nms does not exist')"
    (tmp_path / "torchvision/__init__.py").write_text(broken)
    told = tmp_path / "torchvision-0.99.0.dist-info"
    told.mkdir()
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: torchvision\nVersion: 0.99.0\n")
    code = "from tunefleet import zoo; zoo.build('zoo:bert_tiny')"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert (
        "SetupError: zoo:bert_tiny needs transformers, which does not load: RuntimeError: operator "
        "torchvision::nms does not exist; see `pip check`" in done.stderr
    )
