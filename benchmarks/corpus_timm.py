"""Networks of timm: one small variant of each family, and of families with several designs more."""

from __future__ import annotations

from functools import partial
from typing import Any

from corpus import Architecture, Example

_FEW = {"depth": 3}

#: name: (timm's module, extent of the image, options). The large ones that repeat one block have
#: few of them: the corpus is about operators, not about size.
_NETWORKS: dict[str, tuple[str, int, dict[str, Any]]] = {
    "beit_base_patch16_224": ("beit", 224, _FEW),
    "eca_botnext26ts_256": ("byoanet", 256, {}),
    "halonet_h1": ("byoanet", 256, {}),
    "lambda_resnet26t": ("byoanet", 128, {}),
    "mobileone_s1": ("byobnet", 64, {}),
    "gernet_s": ("byobnet", 64, {}),
    "repvgg_a0": ("byobnet", 64, {}),
    "cait_xxs24_224": ("cait", 224, _FEW),
    "coat_tiny": ("coat", 224, {}),
    "coat_lite_tiny": ("coat", 224, {}),
    "convit_tiny": ("convit", 224, {}),
    "convmixer_768_32": ("convmixer", 64, {}),
    "convnext_zepto_rms": ("convnext", 64, {}),
    "convnextv2_atto": ("convnext", 64, {}),
    "cpubone_nano": ("cpubone", 64, {}),
    "crossvit_9_240": ("crossvit", 240, {}),
    "csatv2": ("csatv2", 256, {}),
    "cs3darknet_focus_s": ("cspnet", 64, {}),
    "cspresnet50": ("cspnet", 64, {}),
    "cspnext_tiny": ("cspnext", 64, {}),
    "davit_tiny": ("davit", 224, {}),
    "deit_tiny_distilled_patch16_224": ("deit", 224, {}),
    "densenetblur121d": ("densenet", 64, {}),
    "dla46x_c": ("dla", 64, {}),
    "dla60_res2next": ("dla", 64, {}),
    "dpn48b": ("dpn", 64, {}),
    "edgenext_xx_small": ("edgenext", 128, {}),
    "efficientformer_l1": ("efficientformer", 224, {}),
    "efficientformerv2_s0": ("efficientformer_v2", 224, {}),
    "efficientnet_es": ("efficientnet", 64, {}),
    "mixnet_s": ("efficientnet", 64, {}),
    "efficientvim_m1": ("efficientvim", 128, {}),
    "efficientvit_b0": ("efficientvit_mit", 64, {}),
    "efficientvit_m0": ("efficientvit_msra", 224, {}),
    "eva02_tiny_patch14_224": ("eva", 224, {}),
    "vit_tiny_patch16_dinov3_qkvb": ("eva", 256, {}),
    "fasternet_t0": ("fasternet", 64, {}),
    "fastvit_t8": ("fastvit", 128, {}),
    "focalnet_tiny_srf": ("focalnet", 64, {}),
    "gcvit_xxtiny": ("gcvit", 224, {}),
    "ghostnet_050": ("ghostnet", 64, {}),
    "ghostnetv3_050": ("ghostnet", 64, {}),
    "hardcorenas_a": ("hardcorenas", 64, {}),
    "hgnetv2_b0": ("hgnet", 64, {}),
    "hiera_tiny_224": ("hiera", 224, {}),
    "hieradet_small": ("hieradet_sam2", 256, {}),
    "hrnet_w18_small": ("hrnet", 64, {}),
    "iformer_t": ("iformer", 224, {}),
    "inception_next_atto": ("inception_next", 64, {}),
    "inception_resnet_v2": ("inception_resnet_v2", 96, {}),
    "inception_v3": ("inception_v3", 96, {}),
    "inception_v4": ("inception_v4", 96, {}),
    "lcnetv2_small": ("lcnetv2", 64, {}),
    "levit_128s": ("levit", 224, {}),
    "levit_conv_128s": ("levit", 224, {}),
    "lowformer_b0": ("lowformer", 64, {}),
    "mambaout_femto": ("mambaout", 64, {}),
    "maxvit_rmlp_pico_rw_256": ("maxxvit", 256, {}),
    "coatnet_pico_rw_224": ("maxxvit", 224, {}),
    "poolformer_s12": ("metaformer", 64, {}),
    "caformer_s18": ("metaformer", 64, {}),
    "gmlp_ti16_224": ("mlp_mixer", 224, {}),
    "resmlp_12_224": ("mlp_mixer", 224, {}),
    "mobilenetv3_small_050": ("mobilenetv3", 64, {}),
    "mobilenetv4_hybrid_medium": ("mobilenetv3", 128, {}),
    "mobilenetv5_base": ("mobilenetv5", 128, {}),
    "mobilevit_xxs": ("mobilevit", 128, {}),
    "mobilevitv2_050": ("mobilevit", 128, {}),
    "mvitv2_tiny": ("mvitv2", 224, {}),
    "naflexvit_base_patch16_gap": ("naflexvit", 128, _FEW),
    "nasnetalarge": ("nasnet", 96, {}),
    "nest_tiny": ("nest", 224, {}),
    "nextvit_small": ("nextvit", 64, {}),
    "nf_regnet_b0": ("nfnet", 64, {}),
    "nf_resnet26": ("nfnet", 64, {}),
    "pit_ti_224": ("pit", 224, {}),
    "pnasnet5large": ("pnasnet", 96, {}),
    "pvt_v2_b0": ("pvt_v2", 64, {}),
    "qwen3_vit_88m": ("qwen3_vit", 128, {**_FEW, "num_classes": 10}),
    "rdnet_tiny": ("rdnet", 64, {}),
    "regnety_002": ("regnet", 64, {}),
    "regnetz_005": ("regnet", 64, {}),
    "repghostnet_050": ("repghost", 64, {}),
    "repvit_m0_9": ("repvit", 64, {}),
    "res2net50_14w_8s": ("res2net", 64, {}),
    "resnest14d": ("resnest", 64, {}),
    "resnet10t": ("resnet", 64, {}),
    "resnetblur50": ("resnet", 64, {}),
    "resnetv2_50": ("resnetv2", 64, {}),
    "rexnet_100": ("rexnet", 64, {}),
    "selecsls42b": ("selecsls", 64, {}),
    "legacy_seresnet18": ("senet", 64, {}),
    "sequencer2d_s": ("sequencer", 64, {"layers": (1, 1, 1, 1)}),
    "shvit_s1": ("shvit", 128, {}),
    "skresnet18": ("sknet", 64, {}),
    "starnet_s1": ("starnet", 64, {}),
    "swiftformer_xs": ("swiftformer", 64, {}),
    "swin_tiny_patch4_window7_224": ("swin_transformer", 224, {}),
    "swinv2_tiny_window8_256": ("swin_transformer_v2", 256, {}),
    "swinv2_cr_tiny_ns_224": ("swin_transformer_v2_cr", 224, {}),
    "tiny_vit_5m_224": ("tiny_vit", 224, {}),
    "tnt_s_patch16_224": ("tnt", 224, _FEW),
    "tresnet_m": ("tresnet", 64, {}),
    "twins_pcpvt_small": ("twins", 224, {}),
    "twins_svt_small": ("twins", 224, {}),
    "vgg11": ("vgg", 64, {}),
    "visformer_tiny": ("visformer", 224, {}),
    "vit_tiny_patch16_224": ("vision_transformer", 224, {}),
    "vit_tiny_r_s16_p8_224": ("vision_transformer_hybrid", 224, _FEW),
    "vit_relpos_small_patch16_224": ("vision_transformer_relpos", 224, _FEW),
    "samvit_base_patch16_224": ("vision_transformer_sam", 224, _FEW),
    "vitamin_small_224": ("vitamin", 224, {}),
    "volo_d1_224": ("volo", 224, {}),
    "vovnet39a": ("vovnet", 64, {}),
    "legacy_xception": ("xception", 96, {}),
    "xception41": ("xception_aligned", 96, {}),
    "xcit_nano_12_p16_224": ("xcit", 224, {}),
}


def networks() -> list[Architecture]:
    """All of them, each built when it is asked for."""
    return [
        Architecture("timm", name, family, partial(_example, name, extent, options))
        for name, (family, extent, options) in _NETWORKS.items()
    ]


def _example(name: str, extent: int, options: dict[str, Any]) -> Example:
    import torch

    from corpus_torchvision import load
    from corpus_weights import calibrated

    load()  # timm imports torchvision, which may not fit the build of torch
    import timm

    torch.manual_seed(0)
    module = timm.create_model(name, pretrained=False, **options)
    image = torch.randn(1, 3, extent, extent, generator=torch.Generator().manual_seed(1))
    return Example(calibrated(module, (image,)), (image,), ("x",), {"x": {0: "batch"}})
