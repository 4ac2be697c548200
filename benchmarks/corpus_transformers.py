"""Networks of Hugging Face transformers at small configurations, with seeded random weights.

Nothing is downloaded: configurations are made here, and weights are drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
import transformers

from corpus import Architecture, Example
from corpus_examples import (
    VOCABULARY,
    ids_only,
    image,
    image_and_text,
    seeded,
    spectrum,
    text,
    transcribed,
    translated,
    wave,
)

#: Sizes by the names that most configurations share; others map them to their own.
_SMALL: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "max_position_embeddings": 128,
}
_GROUPED = _SMALL | {"num_key_value_heads": 2, "pad_token_id": 0}
_GEMMA = _GROUPED | {"head_dim": 16, "query_pre_attn_scalar": 16}
_MOE = _GROUPED | {"num_local_experts": 4, "num_experts": 4, "num_experts_per_tok": 2}
_ENCODER_DECODER: dict[str, Any] = {
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
_IMAGE: dict[str, Any] = {
    "image_size": 64,
    "patch_size": 16,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
}
_STAGES: dict[str, Any] = {"depths": [1, 1, 2, 1], "hidden_sizes": [16, 32, 48, 64]}
_WAVE = _SMALL | {
    "conv_dim": [32, 32, 32],
    "conv_stride": [5, 4, 4],
    "conv_kernel": [10, 4, 4],
    "num_feat_extract_layers": 3,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
}
_SEEN = _IMAGE | {"projection_dim": 32}
_READ = _SMALL | {"projection_dim": 32, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}


def _model(kind: str, head: str, sizes: Mapping[str, Any]) -> Any:
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, **sizes)
    for part in (config, config.get_text_config()):
        if hasattr(part, "use_cache"):
            part.use_cache = False
    found = getattr(transformers, head)
    return seeded(found.from_config(config) if head.startswith("Auto") else found(config))


_Entry = tuple[str, str, Mapping[str, Any], Callable[[Any], Example]]
_MASKED, _CAUSAL, _PLAIN = "AutoModelForMaskedLM", "AutoModelForCausalLM", "AutoModel"
_SEQ2SEQ, _CLASSES = "AutoModelForSeq2SeqLM", "AutoModelForImageClassification"
_DETECTION, _LABELS = "AutoModelForObjectDetection", {"num_labels": 10}

#: Model type, automatic class, sizes, and what it is called with.
_NETWORKS: tuple[_Entry, ...] = (
    ("bert", _MASKED, _SMALL, text),
    ("roberta", _MASKED, _SMALL, text),
    ("xlm-roberta", "AutoModelForSequenceClassification", _SMALL | _LABELS, text),
    (
        "deberta",
        _MASKED,
        _SMALL | {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
        text,
    ),
    (
        "deberta-v2",
        "AutoModelForSequenceClassification",
        _SMALL
        | {
            "relative_attention": True,
            "position_buckets": 8,
            "pos_att_type": ["p2c", "c2p"],
            "share_att_key": True,
        },
        text,
    ),
    ("albert", _MASKED, _SMALL | {"embedding_size": 32}, text),
    ("electra", "AutoModelForPreTraining", _SMALL | {"embedding_size": 32}, text),
    ("mpnet", _MASKED, _SMALL, text),
    ("distilbert", "AutoModelForQuestionAnswering", _SMALL | {"hidden_dim": 128}, text),
    (
        "xlnet",
        _PLAIN,
        {"vocab_size": VOCABULARY, "d_model": 64, "n_layer": 2, "n_head": 4, "d_inner": 128},
        text,
    ),
    ("modernbert", _MASKED, _SMALL | {"pad_token_id": 0, "global_attn_every_n_layers": 2}, text),
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
    ("big_bird", _MASKED, _SMALL | {"attention_type": "original_full"}, text),
    (
        "big_bird",
        _PLAIN,
        _SMALL | {"block_size": 8, "num_random_blocks": 1, "attention_type": "block_sparse"},
        partial(text, length=96),
    ),
    ("squeezebert", _MASKED, _SMALL | {"embedding_size": 64}, text),
    (
        "mobilebert",
        _MASKED,
        _SMALL | {"embedding_size": 32, "intra_bottleneck_size": 32, "true_hidden_size": 32},
        text,
    ),
    ("convbert", _MASKED, _SMALL | {"embedding_size": 64}, text),
    ("fnet", _MASKED, _SMALL, ids_only),
    ("roformer", _MASKED, _SMALL | {"embedding_size": 64}, text),
    (
        "esm",
        _MASKED,
        _SMALL | {"pad_token_id": 1, "mask_token_id": 2, "position_embedding_type": "rotary"},
        text,
    ),
    ("rembert", _PLAIN, _SMALL | {"input_embedding_size": 32}, text),
    ("canine", _PLAIN, _SMALL | {"num_hash_buckets": 64, "local_transformer_stride": 8}, text),
    ("gpt2", _CAUSAL, _SMALL, text),
    (
        "gpt_neo",
        _CAUSAL,
        _SMALL | {"num_layers": 2, "attention_types": [[["global", "local"], 1]], "window_size": 8},
        text,
    ),
    ("gpt_neox", _CAUSAL, _SMALL, text),
    ("gptj", _CAUSAL, _SMALL | {"rotary_dim": 8}, text),
    ("codegen", _CAUSAL, _SMALL | {"rotary_dim": 8}, text),
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
    ("phi", _CAUSAL, _SMALL, text),
    ("phi3", _CAUSAL, _GROUPED, text),
    ("opt", _CAUSAL, _SMALL | {"ffn_dim": 128, "word_embed_proj_dim": 64}, text),
    ("bloom", _CAUSAL, _SMALL, text),
    ("falcon", _CAUSAL, _SMALL | {"new_decoder_architecture": False, "alibi": False}, text),
    ("mamba", _CAUSAL, _SMALL | {"state_size": 8}, partial(ids_only, length=12)),
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
    ("rwkv", _CAUSAL, _SMALL | {"attention_hidden_size": 64}, partial(ids_only, length=12)),
    ("t5", _SEQ2SEQ, _T5, translated),
    ("umt5", _SEQ2SEQ, _T5 | {"feed_forward_proj": "gated-gelu"}, translated),
    ("longt5", _SEQ2SEQ, _T5 | {"local_radius": 7}, translated),
    ("bart", _SEQ2SEQ, _ENCODER_DECODER, translated),
    ("mbart", _SEQ2SEQ, _ENCODER_DECODER, translated),
    ("marian", _SEQ2SEQ, _ENCODER_DECODER, translated),
    ("pegasus", _SEQ2SEQ, _ENCODER_DECODER, translated),
    ("blenderbot", _SEQ2SEQ, _ENCODER_DECODER, translated),
    ("m2m_100", _SEQ2SEQ, _ENCODER_DECODER, translated),
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
    ("vit", _CLASSES, _IMAGE | _LABELS, image),
    ("deit", "DeiTForImageClassification", _IMAGE | _LABELS, image),
    (
        "swin",
        _CLASSES,
        {
            "image_size": 64,
            "patch_size": 4,
            "embed_dim": 16,
            "depths": [1, 2],
            "num_heads": [2, 4],
            "window_size": 4,
        },
        image,
    ),
    (
        "swinv2",
        _CLASSES,
        {
            "image_size": 64,
            "patch_size": 4,
            "embed_dim": 16,
            "depths": [1, 2],
            "num_heads": [2, 4],
            "window_size": 4,
        },
        image,
    ),
    ("beit", _CLASSES, _IMAGE | _LABELS | {"use_relative_position_bias": True}, image),
    ("dinov2", _PLAIN, _IMAGE | {"mlp_ratio": 2}, image),
    ("dinov3_vit", _PLAIN, _IMAGE | {"num_register_tokens": 2}, image),
    (
        "segformer",
        "AutoModelForSemanticSegmentation",
        _STAGES | {"decoder_hidden_size": 32, "num_attention_heads": [1, 2, 3, 4]},
        image,
    ),
    (
        "mobilevit",
        _CLASSES,
        {
            "image_size": 64,
            "hidden_sizes": [24, 32, 40],
            "neck_hidden_sizes": [8, 16, 24, 32, 40, 48, 64],
        },
        image,
    ),
    ("mobilevitv2", _CLASSES, {"image_size": 64, "width_multiplier": 0.5}, image),
    ("convnext", _CLASSES, _STAGES, image),
    ("convnextv2", _CLASSES, _STAGES, image),
    ("resnet", _CLASSES, _STAGES | {"embedding_size": 16}, image),
    ("regnet", _CLASSES, _STAGES | {"embedding_size": 16, "groups_width": 8}, image),
    (
        "efficientnet",
        _CLASSES,
        {"width_coefficient": 0.5, "depth_coefficient": 0.5, "hidden_dim": 640},
        image,
    ),
    ("mobilenet_v2", _CLASSES, {"depth_multiplier": 0.5}, image),
    ("poolformer", _CLASSES, _STAGES, image),
    (
        "levit",
        "LevitForImageClassification",
        {
            "image_size": 64,
            "hidden_sizes": [32, 48, 64],
            "num_attention_heads": [2, 3, 4],
            "depths": [1, 1, 1],
            "key_dim": [8, 8, 8],
        },
        image,
    ),
    (
        "cvt",
        _CLASSES,
        {
            "embed_dim": [16, 32, 64],
            "num_heads": [1, 2, 4],
            "depth": [1, 2, 3],
        },
        image,
    ),
    ("pvt_v2", _CLASSES, _STAGES | {"num_attention_heads": [1, 2, 3, 4]}, image),
    (
        "focalnet",
        _CLASSES,
        {
            "image_size": 64,
            "embed_dim": 16,
            "depths": [1, 1],
            "hidden_sizes": [16, 32],
            "focal_levels": [2, 2],
            "focal_windows": [3, 3],
        },
        image,
    ),
    (
        "hiera",
        _CLASSES,
        {
            "image_size": [64, 64],
            "embed_dim": 16,
            "depths": [1, 1, 2, 1],
            "num_heads": [1, 2, 2, 4],
        },
        image,
    ),
    (
        "glpn",
        "AutoModelForDepthEstimation",
        _STAGES | {"num_attention_heads": [1, 2, 3, 4], "decoder_hidden_size": 16},
        image,
    ),
    (
        "dpt",
        "AutoModelForDepthEstimation",
        _IMAGE
        | {
            "num_hidden_layers": 4,
            "backbone_out_indices": [0, 1, 2, 3],
            "neck_hidden_sizes": [16, 32, 48, 64],
            "fusion_hidden_size": 32,
        },
        image,
    ),
    (
        "yolos",
        _DETECTION,
        _IMAGE | _LABELS | {"image_size": [64, 64], "num_detection_tokens": 10},
        image,
    ),
    (
        "detr",
        _DETECTION,
        _ENCODER_DECODER
        | _LABELS
        | {
            "num_queries": 10,
            "use_timm_backbone": False,
            "use_pretrained_backbone": False,
            "backbone": None,
            "backbone_config": {
                "model_type": "resnet",
                **_STAGES,
                "embedding_size": 16,
                "out_features": ["stage4"],
            },
        },
        image,
    ),
    (
        "swin2sr",
        "AutoModelForImageToImage",
        {
            "image_size": 32,
            "embed_dim": 16,
            "depths": [2, 2],
            "num_heads": [2, 2],
            "window_size": 4,
        },
        partial(image, size=32),
    ),
    ("wav2vec2", "AutoModelForCTC", _WAVE, wave),
    ("hubert", "AutoModelForCTC", _WAVE, wave),
    ("wavlm", _PLAIN, _WAVE | {"num_buckets": 16}, wave),
    ("sew", _PLAIN, _WAVE | {"squeeze_factor": 2}, wave),
    ("unispeech-sat", _PLAIN, _WAVE, wave),
    (
        "audio-spectrogram-transformer",
        "AutoModelForAudioClassification",
        _SMALL | _LABELS | {"max_length": 64, "num_mel_bins": 32},
        spectrum,
    ),
    (
        "whisper",
        "AutoModelForSpeechSeq2Seq",
        _ENCODER_DECODER
        | {"num_mel_bins": 16, "max_source_positions": 32, "max_target_positions": 64},
        transcribed,
    ),
    (
        "clip",
        _PLAIN,
        {"text_config": _READ, "vision_config": _SEEN, "projection_dim": 32},
        image_and_text,
    ),
    ("siglip", _PLAIN, {"text_config": _SMALL, "vision_config": _IMAGE}, image_and_text),
    (
        "chinese_clip",
        _PLAIN,
        {"text_config": _SMALL, "vision_config": _SEEN, "projection_dim": 32},
        image_and_text,
    ),
    (
        "clipseg",
        _PLAIN,
        {"text_config": _READ, "vision_config": _SEEN, "projection_dim": 32},
        image_and_text,
    ),
    (
        "blip",
        "BlipForImageTextRetrieval",
        {
            "text_config": _SMALL | {"encoder_hidden_size": 64},
            "vision_config": _IMAGE,
            "image_text_hidden_size": 32,
        },
        image_and_text,
    ),
    (
        "owlvit",
        _PLAIN,
        {"text_config": _READ, "vision_config": _SEEN, "projection_dim": 32},
        image_and_text,
    ),
    (
        "vilt",
        _PLAIN,
        _SMALL | {"image_size": 64, "patch_size": 16, "max_image_length": 16},
        image_and_text,
    ),
)


def _build(entry: _Entry) -> Example:
    kind, head, sizes, example = entry
    return example(_model(kind, head, sizes))


def networks() -> list[Architecture]:
    """Each of them; one of a model type has its name, a second the class as well."""
    found: dict[str, Architecture] = {}
    for entry in _NETWORKS:
        name = entry[0] if entry[0] not in found else f"{entry[0]}-{entry[2]['attention_type']}"
        found[name] = Architecture("transformers", name, entry[0], partial(_build, entry))
    return list(found.values())
