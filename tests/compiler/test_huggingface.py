"""Hugging Face folders: what is read of them, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tunefleet.compiler.frontends import ImportRequest, load_network, network_digest, network_name
from tunefleet.compiler.frontends.huggingface_inputs import inputs_of
from tunefleet.core.shapes import ShapeRequest
from tunefleet.errors import InputError

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", reason="needs tunefleet[huggingface]")
pytestmark = [pytest.mark.tvm, pytest.mark.filterwarnings("ignore")]

_SIZES = {
    "vocab_size": 50,
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 32,
}


def _bert() -> Any:
    torch.manual_seed(0)
    return transformers.BertForMaskedLM(transformers.BertConfig(**_SIZES)).eval()


def _saved(folder: Path, model: Any, **options: Any) -> Path:
    path = folder / "my-model"
    model.save_pretrained(path, **options)
    return path


def _changed(path: Path, **values: Any) -> Path:
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | values))
    return path


def _asked(folder: Path, **dims: int) -> ImportRequest:
    return ImportRequest(folder, ShapeRequest.of((), [(n, [v]) for n, v in dims.items()]))


def test_a_folder_computes_what_transformers_computes(tmp_path: Path) -> None:
    from tunefleet.compiler.toolchain import load_tvm

    model = _bert()
    network = load_network(_saved(tmp_path, model), _asked(tmp_path, sequence=6))
    assert [(i.name, i.shape) for i in network.info.inputs] == [
        ("input_ids", (1, 6)),
        ("attention_mask", (1, 6)),
    ]
    assert [o.name for o in network.info.outputs] == ["logits"]
    ids, mask = network.example_inputs
    with torch.no_grad():
        expected = model(torch.from_numpy(ids), torch.from_numpy(mask)).logits.numpy()
    tvm = load_tvm()
    machine = tvm.relax.VirtualMachine(tvm.compile(network.mod, "llvm"), tvm.cpu())
    found = machine["main"](tvm.runtime.tensor(ids), tvm.runtime.tensor(mask)).numpy()
    np.testing.assert_allclose(expected, found, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(expected, network.reference([ids, mask])[0], rtol=1e-5, atol=1e-6)


def test_weights_of_other_shapes_are_told_by_name(tmp_path: Path) -> None:
    path = _changed(_saved(tmp_path, _bert()), vocab_size=51)
    with pytest.raises(InputError, match=r"other shapes than BertForMaskedLM: .*word_embeddings"):
        load_network(path, _asked(tmp_path, sequence=6))


def test_a_sequence_that_nobody_gave_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="free dimensions: sequence") as error:
        load_network(_saved(tmp_path, _bert()))
    assert "--dim sequence=" in str(error.value.cure)


def test_a_sequence_beyond_the_positions_of_the_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="knows 32 positions"):
        load_network(_saved(tmp_path, _bert()), _asked(tmp_path, sequence=33))


def test_half_weights_in_shards_are_computed_in_float32(tmp_path: Path) -> None:
    path = _saved(tmp_path, _bert().to(torch.bfloat16), max_shard_size="2KB")
    assert len(list(path.glob("*.safetensors"))) > 1
    network = load_network(path, _asked(tmp_path, sequence=4))
    assert "its weights are stored as bfloat16 and computed in float32" in network.notes
    assert network.info.outputs[0].dtype == "float32"


def test_an_image_has_the_size_of_its_processor(tmp_path: Path) -> None:
    sizes = _SIZES | {"image_size": 16, "patch_size": 8}
    path = _saved(tmp_path, transformers.ViTModel(transformers.ViTConfig(**sizes)))
    processor = {"size": {"shortest_edge": 20}, "crop_size": {"height": 16, "width": 16}}
    (path / "preprocessor_config.json").write_text(json.dumps(processor))
    network = load_network(path)
    assert [(i.name, i.shape) for i in network.info.inputs] == [("pixel_values", (1, 3, 16, 16))]
    assert "height is 16, as the network itself says" in network.notes


@pytest.mark.parametrize("size", ['"x"', "-5", "[1]", '{"height": null, "width": 2}'])
def test_a_size_of_a_processor_that_is_none_is_left_out(tmp_path: Path, size: str) -> None:
    sizes = _SIZES | {"image_size": 16, "patch_size": 8}
    path = _saved(tmp_path, transformers.ViTModel(transformers.ViTConfig(**sizes)))
    (path / "preprocessor_config.json").write_text(f'{{"size": {size}}}')
    assert load_network(path).info.inputs[0].shape == (1, 3, 16, 16)


def test_a_damaged_file_of_a_processor_is_told(tmp_path: Path) -> None:
    path = _saved(tmp_path, transformers.ViTModel(transformers.ViTConfig(**_SIZES)))
    (path / "preprocessor_config.json").write_bytes(b"\xff")
    with pytest.raises(InputError, match=r"preprocessor_config\.json is not JSON"):
        load_network(path)


def test_a_translator_takes_what_its_decoder_has_said(tmp_path: Path) -> None:
    sizes = {"vocab_size": 50, "d_model": 8, "d_kv": 4, "d_ff": 16, "num_layers": 1, "num_heads": 2}
    model = transformers.T5ForConditionalGeneration(transformers.T5Config(**sizes))
    assert {i.name: i.extents for i in inputs_of(model, tmp_path, "t5")[0]} == {
        "input_ids": ("batch", "sequence"),
        "attention_mask": ("batch", "sequence"),
        "decoder_input_ids": ("batch", "decoder_sequence"),
    }


def test_name_and_digest_cover_configuration_and_weights(tmp_path: Path) -> None:
    path = _saved(tmp_path, _bert())
    assert network_name(path) == "my-model"
    before = network_digest(path)
    after = network_digest(_changed(path, layer_norm_eps=0.5))
    weights = path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
    other = network_digest(path)
    (path / "preprocessor_config.json").write_text('{"size": 32}')
    assert len({before, after, other, network_digest(path)}) == 4


def _without_weights(path: Path) -> None:
    (path / "model.safetensors").rename(path / "pytorch_model.bin")


def _without_config(path: Path) -> None:
    (path / "config.json").unlink()


def _damaged(path: Path) -> None:
    (path / "model.safetensors").write_bytes(b"nothing")


def _not_json(path: Path) -> None:
    (path / "config.json").write_text("{")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_without_weights, "no .safetensors"),
        (_without_config, "weights without config.json"),
        (_damaged, "cannot load BertForMaskedLM"),
        (_not_json, "cannot read its config.json"),
        (lambda path: _changed(path, architectures=["Mine"]), "is a Mine, which"),
        (lambda path: _changed(path, architectures=None), "names no class"),
        (lambda path: _changed(path, architectures=True), "names no class"),
        (lambda path: _changed(path, architectures="BertModel"), "names no class"),
        (lambda path: _changed(path, model_type="mine"), "cannot read its config.json"),
        (
            lambda path: _changed(path, architectures=["BertForTokenClassification"]),
            "lacks weights of BertForTokenClassification: classifier",
        ),
        (lambda path: _changed(path, num_hidden_layers=10**9), "num_hidden_layers = 1,000,000,000"),
        (lambda path: _changed(path, num_labels=10**9), "num_labels = 1,000,000,000"),
        (lambda path: _changed(path, intermediate_size=8), "weights of other shapes than"),
        (lambda path: _changed(path, quantization_config={"bits": 4}), "quantised weights"),
    ],
)
def test_a_folder_that_is_no_model_is_refused(change: Any, said: str, tmp_path: Path) -> None:
    path = _saved(tmp_path, _bert())
    change(path)
    with pytest.raises(InputError, match=said) as error:
        load_network(path, _asked(tmp_path, sequence=4))
    assert "\n" not in str(error.value)
