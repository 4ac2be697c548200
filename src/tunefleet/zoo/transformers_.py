"""Language networks from the configurations of Hugging Face Transformers, with random weights."""

from __future__ import annotations

from typing import Any

import torch
import transformers
from torch import Tensor, nn

from tunefleet.zoo.spec import ZooSpec


class _OneOutput(nn.Module):
    """Takes token ids alone and returns one tensor, the attribute `output` of the result."""

    def __init__(self, network: nn.Module, output: str) -> None:
        super().__init__()
        self.network = network
        self.output = output

    def forward(self, input_ids: Tensor) -> Tensor:
        result: Tensor = getattr(self.network(input_ids=input_ids), self.output)
        return result


def _perturb(network: nn.Module) -> None:
    """Gives biases and norms the values of no particular network.

    They start as zeros and ones, which a compiler may drop: it would be tuned for less work than
    a trained network takes.
    """
    for name, parameter in network.named_parameters():
        if name.endswith("bias"):
            nn.init.uniform_(parameter, -0.1, 0.1)
        elif parameter.ndim == 1:
            nn.init.uniform_(parameter, 0.5, 1.5)


def _token_ids(spec: ZooSpec, vocabulary: int) -> dict[str, Tensor]:
    return {"input_ids": torch.randint(0, vocabulary, (spec["batch"], spec["size"]))}


def _bert(spec: ZooSpec, **settings: Any) -> tuple[nn.Module, dict[str, Tensor]]:
    config = transformers.BertConfig(use_cache=False, **settings)
    config._attn_implementation = "eager"
    network = transformers.BertModel(config, add_pooling_layer=False)
    _perturb(network)
    return _OneOutput(network, "last_hidden_state"), _token_ids(spec, config.vocab_size)


def bert_base(spec: ZooSpec) -> tuple[nn.Module, dict[str, Tensor]]:
    """12 layers, width 768 (Devlin et al. 2018, https://arxiv.org/abs/1810.04805)."""
    return _bert(spec)


def bert_2l(spec: ZooSpec) -> tuple[nn.Module, dict[str, Tensor]]:
    """The first two layers of BERT base: the same operators at a sixth of the work."""
    return _bert(spec, num_hidden_layers=2)


def bert_tiny(spec: ZooSpec) -> tuple[nn.Module, dict[str, Tensor]]:
    """6 layers, width 512: what TenSet (Zheng et al. 2021) calls bert_tiny."""
    return _bert(
        spec,
        num_hidden_layers=6,
        hidden_size=512,
        intermediate_size=2048,
        num_attention_heads=8,
    )


def bert_small(spec: ZooSpec) -> tuple[nn.Module, dict[str, Tensor]]:
    """4 layers, width 512 (Turc et al. 2019, https://arxiv.org/abs/1908.08962)."""
    return _bert(
        spec,
        num_hidden_layers=4,
        hidden_size=512,
        intermediate_size=2048,
        num_attention_heads=8,
    )


def bert_medium(spec: ZooSpec) -> tuple[nn.Module, dict[str, Tensor]]:
    """12 layers, width 1024: what TenSet calls bert_medium."""
    return _bert(spec, hidden_size=1024, intermediate_size=4096, num_attention_heads=16)


def bert_large(spec: ZooSpec) -> tuple[nn.Module, dict[str, Tensor]]:
    """24 layers, width 1024."""
    return _bert(
        spec,
        num_hidden_layers=24,
        hidden_size=1024,
        intermediate_size=4096,
        num_attention_heads=16,
    )


def distilbert(spec: ZooSpec) -> tuple[nn.Module, dict[str, Tensor]]:
    """6 layers, width 768 (Sanh et al. 2019, https://arxiv.org/abs/1910.01108)."""
    config = transformers.DistilBertConfig()
    config._attn_implementation = "eager"
    network = transformers.DistilBertModel(config)
    _perturb(network)
    return _OneOutput(network, "last_hidden_state"), _token_ids(spec, config.vocab_size)


def t5_small(spec: ZooSpec) -> tuple[nn.Module, dict[str, Tensor]]:
    """The encoder: 6 layers, width 512 (Raffel et al. 2019, https://arxiv.org/abs/1910.10683)."""
    return _t5(spec)


def _t5(spec: ZooSpec, **settings: Any) -> tuple[nn.Module, dict[str, Tensor]]:
    config = transformers.T5Config(use_cache=False, **settings)
    config._attn_implementation = "eager"
    network = transformers.T5EncoderModel(config)
    _perturb(network)
    return _OneOutput(network, "last_hidden_state"), _token_ids(spec, config.vocab_size)


def llama_tiny(spec: ZooSpec) -> tuple[nn.Module, dict[str, Tensor]]:
    """Llama's operators (rotary positions, gated MLP, RMS norm) at 8 layers of width 512."""
    return _llama(spec, vocab_size=32_000, hidden_size=512, num_hidden_layers=8)


def _llama(
    spec: ZooSpec, *, hidden_size: int, **settings: Any
) -> tuple[nn.Module, dict[str, Tensor]]:
    config = transformers.LlamaConfig(
        hidden_size=hidden_size,
        intermediate_size=hidden_size * 43 // 16,
        num_attention_heads=hidden_size // 64,
        use_cache=False,
        **settings,
    )
    config._attn_implementation = "eager"
    network = transformers.LlamaForCausalLM(config)
    _perturb(network)
    return _OneOutput(network, "logits"), _token_ids(spec, config.vocab_size)


def gpt2_medium(spec: ZooSpec) -> tuple[nn.Module, dict[str, Tensor]]:
    """24 layers, width 1024, as `gpt2_small` else."""
    return _gpt2(spec, n_layer=24, n_embd=1024, n_head=16)


def gpt2_small(spec: ZooSpec) -> tuple[nn.Module, dict[str, Tensor]]:
    """12 layers, width 768, with the language head (Radford et al. 2019); no cache."""
    return _gpt2(spec)


def _gpt2(spec: ZooSpec, **settings: Any) -> tuple[nn.Module, dict[str, Tensor]]:
    config = transformers.GPT2Config(use_cache=False, **settings)
    config._attn_implementation = "eager"
    network = transformers.GPT2LMHeadModel(config)
    _perturb(network)
    return _OneOutput(network, "logits"), _token_ids(spec, config.vocab_size)
