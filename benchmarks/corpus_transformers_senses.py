"""Networks of transformers that see and hear, with text or without, at small sizes."""

from __future__ import annotations

from functools import partial
from typing import Any

from corpus_examples import image, image_and_text, spectrum, transcribed, wave
from corpus_transformers_text import ENCODER_DECODER, LABELS, PLAIN, SMALL, Entry

_IMAGE: dict[str, Any] = {
    "image_size": 64,
    "patch_size": 16,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
}
_STAGES: dict[str, Any] = {"depths": [1, 1, 2, 1], "hidden_sizes": [16, 32, 48, 64]}
_WAVE = SMALL | {
    "conv_dim": [32, 32, 32],
    "conv_stride": [5, 4, 4],
    "conv_kernel": [10, 4, 4],
    "num_feat_extract_layers": 3,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
}
_SEEN = _IMAGE | {"projection_dim": 32}
_READ = SMALL | {"projection_dim": 32, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
_CLASSES, _DETECTION = "AutoModelForImageClassification", "AutoModelForObjectDetection"
_WINDOWS = {
    "image_size": 64,
    "patch_size": 4,
    "embed_dim": 16,
    "depths": [1, 2],
    "num_heads": [2, 4],
    "window_size": 4,
}

#: As TEXTS.
SENSES: tuple[Entry, ...] = (
    ("vit", _CLASSES, _IMAGE | LABELS, image),
    ("deit", "DeiTForImageClassification", _IMAGE | LABELS, image),
    ("swin", _CLASSES, _WINDOWS, image),
    ("swinv2", _CLASSES, _WINDOWS, image),
    ("beit", _CLASSES, _IMAGE | LABELS | {"use_relative_position_bias": True}, image),
    ("dinov2", PLAIN, _IMAGE | {"mlp_ratio": 2}, image),
    ("dinov3_vit", PLAIN, _IMAGE | {"num_register_tokens": 2}, image),
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
        _IMAGE | LABELS | {"image_size": [64, 64], "num_detection_tokens": 10},
        image,
    ),
    (
        "detr",
        _DETECTION,
        ENCODER_DECODER
        | LABELS
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
    ("wavlm", PLAIN, _WAVE | {"num_buckets": 16}, wave),
    ("sew", PLAIN, _WAVE | {"squeeze_factor": 2}, wave),
    ("unispeech-sat", PLAIN, _WAVE, wave),
    (
        "audio-spectrogram-transformer",
        "AutoModelForAudioClassification",
        SMALL | LABELS | {"max_length": 64, "num_mel_bins": 32},
        spectrum,
    ),
    (
        "whisper",
        "AutoModelForSpeechSeq2Seq",
        ENCODER_DECODER
        | {"num_mel_bins": 16, "max_source_positions": 32, "max_target_positions": 64},
        transcribed,
    ),
    (
        "clip",
        PLAIN,
        {"text_config": _READ, "vision_config": _SEEN, "projection_dim": 32},
        image_and_text,
    ),
    ("siglip", PLAIN, {"text_config": SMALL, "vision_config": _IMAGE}, image_and_text),
    (
        "chinese_clip",
        PLAIN,
        {"text_config": SMALL, "vision_config": _SEEN, "projection_dim": 32},
        image_and_text,
    ),
    (
        "clipseg",
        PLAIN,
        {"text_config": _READ, "vision_config": _SEEN, "projection_dim": 32},
        image_and_text,
    ),
    (
        "blip",
        "BlipForImageTextRetrieval",
        {
            "text_config": SMALL | {"encoder_hidden_size": 64},
            "vision_config": _IMAGE,
            "image_text_hidden_size": 32,
        },
        image_and_text,
    ),
    (
        "owlvit",
        PLAIN,
        {"text_config": _READ, "vision_config": _SEEN, "projection_dim": 32},
        image_and_text,
    ),
    (
        "vilt",
        PLAIN,
        SMALL | {"image_size": 64, "patch_size": 16, "max_image_length": 16},
        image_and_text,
    ),
)
