"""Networks of transformers that read and write text, at small sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from corpus import Example
from corpus_examples import VOCABULARY, ids_only, text, translated

Entry = tuple[str, str, Mapping[str, Any], Callable[[Any], Example]]

#: Sizes by the names that most configurations share; others map them to their own.
SMALL: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "max_position_embeddings": 128,
}
_GROUPED = SMALL | {"num_key_value_heads": 2, "pad_token_id": 0}
_GEMMA = _GROUPED | {"head_dim": 16, "query_pre_attn_scalar": 16}
_MOE = _GROUPED | {"num_local_experts": 4, "num_experts": 4, "num_experts_per_tok": 2}
ENCODER_DECODER: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 128,
    "decoder_ffn_dim": 128,
    "max_position_embeddings": 128,
    "decoder_start_token_id": 2,
    "pad_token_id": 1,
}
_T5: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "d_model": 64,
    "d_kv": 16,
    "d_ff": 128,
    "num_layers": 2,
    "num_heads": 4,
}
_MASKED, _CAUSAL = "AutoModelForMaskedLM", "AutoModelForCausalLM"
_SEQ2SEQ, PLAIN = "AutoModelForSeq2SeqLM", "AutoModel"
LABELS = {"num_labels": 10}

#: Model type, automatic class, sizes, and what it is called with.
TEXTS: tuple[Entry, ...] = (
    ("bert", _MASKED, SMALL, text),
    ("roberta", _MASKED, SMALL, text),
    ("xlm-roberta", "AutoModelForSequenceClassification", SMALL | LABELS, text),
    (
        "deberta",
        _MASKED,
        SMALL | {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
        text,
    ),
    (
        "deberta-v2",
        "AutoModelForSequenceClassification",
        SMALL
        | {
            "relative_attention": True,
            "position_buckets": 8,
            "pos_att_type": ["p2c", "c2p"],
            "share_att_key": True,
        },
        text,
    ),
    ("albert", _MASKED, SMALL | {"embedding_size": 32}, text),
    ("electra", "AutoModelForPreTraining", SMALL | {"embedding_size": 32}, text),
    ("mpnet", _MASKED, SMALL, text),
    ("distilbert", "AutoModelForQuestionAnswering", SMALL | {"hidden_dim": 128}, text),
    (
        "xlnet",
        PLAIN,
        {"vocab_size": VOCABULARY, "d_model": 64, "n_layer": 2, "n_head": 4, "d_inner": 128},
        text,
    ),
    ("modernbert", _MASKED, SMALL | {"pad_token_id": 0, "global_attn_every_n_layers": 2}, text),
    (
        "funnel",
        "FunnelModel",
        {
            "vocab_size": VOCABULARY,
            "block_sizes": [1, 1],
            "num_decoder_layers": 1,
            "d_model": 64,
            "n_head": 4,
            "d_head": 16,
            "d_inner": 128,
        },
        text,
    ),
    ("big_bird", _MASKED, SMALL | {"attention_type": "original_full"}, text),
    (
        "big_bird",
        PLAIN,
        SMALL | {"block_size": 8, "num_random_blocks": 1, "attention_type": "block_sparse"},
        partial(text, length=96),
    ),
    ("squeezebert", _MASKED, SMALL | {"embedding_size": 64}, text),
    (
        "mobilebert",
        _MASKED,
        SMALL | {"embedding_size": 32, "intra_bottleneck_size": 32, "true_hidden_size": 32},
        text,
    ),
    ("convbert", _MASKED, SMALL | {"embedding_size": 64}, text),
    ("fnet", _MASKED, SMALL, ids_only),
    ("roformer", _MASKED, SMALL | {"embedding_size": 64}, text),
    (
        "esm",
        _MASKED,
        SMALL | {"pad_token_id": 1, "mask_token_id": 2, "position_embedding_type": "rotary"},
        text,
    ),
    ("rembert", PLAIN, SMALL | {"input_embedding_size": 32}, text),
    ("canine", PLAIN, SMALL | {"num_hash_buckets": 64, "local_transformer_stride": 8}, text),
    ("gpt2", _CAUSAL, SMALL, text),
    (
        "gpt_neo",
        _CAUSAL,
        SMALL | {"num_layers": 2, "attention_types": [[["global", "local"], 1]], "window_size": 8},
        text,
    ),
    ("gpt_neox", _CAUSAL, SMALL, text),
    ("gptj", _CAUSAL, SMALL | {"rotary_dim": 8}, text),
    ("codegen", _CAUSAL, SMALL | {"rotary_dim": 8}, text),
    ("llama", _CAUSAL, _GROUPED, text),
    ("mistral", _CAUSAL, _GROUPED | {"sliding_window": 16}, text),
    ("mixtral", _CAUSAL, _MOE, text),
    ("qwen2", _CAUSAL, _GROUPED, text),
    (
        "qwen2_moe",
        _CAUSAL,
        _MOE | {"moe_intermediate_size": 64, "shared_expert_intermediate_size": 64},
        text,
    ),
    ("qwen3", _CAUSAL, _GROUPED | {"head_dim": 16}, text),
    ("gemma", _CAUSAL, _GROUPED | {"head_dim": 16}, text),
    ("gemma2", _CAUSAL, _GEMMA | {"sliding_window": 16}, text),
    ("gemma3_text", _CAUSAL, _GEMMA | {"sliding_window": 16}, text),
    ("phi", _CAUSAL, SMALL, text),
    ("phi3", _CAUSAL, _GROUPED, text),
    ("opt", _CAUSAL, SMALL | {"ffn_dim": 128, "word_embed_proj_dim": 64}, text),
    ("bloom", _CAUSAL, SMALL, text),
    ("falcon", _CAUSAL, SMALL | {"new_decoder_architecture": False, "alibi": False}, text),
    ("mamba", _CAUSAL, SMALL | {"state_size": 8}, partial(ids_only, length=12)),
    (
        "mpt",
        _CAUSAL,
        {"vocab_size": VOCABULARY, "d_model": 64, "n_heads": 4, "n_layers": 2},
        text,
    ),
    ("stablelm", _CAUSAL, _GROUPED, text),
    ("starcoder2", _CAUSAL, _GROUPED, text),
    ("olmo2", _CAUSAL, _GROUPED, text),
    ("cohere", _CAUSAL, _GROUPED, text),
    ("granite", _CAUSAL, _GROUPED, text),
    (
        "xglm",
        _CAUSAL,
        {
            "vocab_size": VOCABULARY,
            "d_model": 64,
            "ffn_dim": 128,
            "num_layers": 2,
            "attention_heads": 4,
        },
        text,
    ),
    ("smollm3", _CAUSAL, _GROUPED, text),
    ("rwkv", _CAUSAL, SMALL | {"attention_hidden_size": 64}, partial(ids_only, length=12)),
    ("t5", _SEQ2SEQ, _T5, translated),
    ("umt5", _SEQ2SEQ, _T5 | {"feed_forward_proj": "gated-gelu"}, translated),
    ("longt5", _SEQ2SEQ, _T5 | {"local_radius": 7}, translated),
    ("bart", _SEQ2SEQ, ENCODER_DECODER, translated),
    ("mbart", _SEQ2SEQ, ENCODER_DECODER, translated),
    ("marian", _SEQ2SEQ, ENCODER_DECODER, translated),
    ("pegasus", _SEQ2SEQ, ENCODER_DECODER, translated),
    ("blenderbot", _SEQ2SEQ, ENCODER_DECODER, translated),
    ("m2m_100", _SEQ2SEQ, ENCODER_DECODER, translated),
    (
        "prophetnet",
        _SEQ2SEQ,
        {
            "vocab_size": VOCABULARY,
            "hidden_size": 64,
            "num_encoder_layers": 2,
            "num_decoder_layers": 2,
            "num_encoder_attention_heads": 4,
            "num_decoder_attention_heads": 4,
            "encoder_ffn_dim": 128,
            "decoder_ffn_dim": 128,
            "ngram": 2,
        },
        translated,
    ),
)
