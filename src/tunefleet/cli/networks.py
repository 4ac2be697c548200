"""The zoo in words, for people who choose a network from a list."""

from __future__ import annotations

from typing import Any

ABOUT = {
    "bert_2l": "BERT with the width of base and 2 of its 12 layers",
    "bert_base": "BERT base, 12 layers of width 768",
    "bert_large": "BERT large, 24 layers of width 1024",
    "bert_medium": "BERT medium as in TenSet, 12 layers of width 1024",
    "bert_small": "BERT small, 4 layers of width 512",
    "bert_tiny": "BERT tiny as in TenSet, 6 layers of width 512",
    "convnext_tiny": "ConvNeXt tiny, 7x7 depthwise convolutions and layer norms",
    "dcgan": "generator of DCGAN, transposed convolutions",
    "densenet121": "DenseNet-121, convolutions over concatenated features",
    "distilbert": "DistilBERT, 6 layers of width 768",
    "efficientnet_b0": "EfficientNet-B0, depthwise convolutions with squeeze and excite",
    "gpt2_medium": "GPT-2 medium, one pass over a prompt",
    "gpt2_small": "GPT-2 small, one pass over a prompt",
    "inception_v3": "Inception v3, parallel branches of convolutions",
    "llama_tiny": "Llama's operators at 8 layers of width 512",
    "mixer_small": "MLP-Mixer small, no convolutions but the patches'",
    "mobilenet_v2": "MobileNetV2, depthwise convolutions for small devices",
    "mobilenet_v3_large": "MobileNetV3 large, hardswish with squeeze and excite",
    "mobilenet_v3_small": "MobileNetV3 small",
    "resnet101": "ResNet-101",
    "resnet18": "ResNet-18, the smallest residual network",
    "resnet34": "ResNet-34",
    "resnet3d18": "ResNet-18 over video clips, 3D convolutions",
    "resnet50": "ResNet-50, the usual yardstick",
    "resnext50_32x4d": "ResNeXt-50, grouped convolutions",
    "shufflenet_v2": "ShuffleNetV2, half of the channels shuffled per unit",
    "squeezenet": "SqueezeNet 1.1, few weights",
    "swin_tiny": "Swin Transformer tiny, attention within shifted windows",
    "t5_small": "encoder of T5 small, relative positions and RMS norms",
    "tiny_cnn": "a few small operators, tuned within minutes",
    "vgg11": "VGG-11, large plain convolutions",
    "vgg16": "VGG-16, large plain convolutions",
    "vit_base": "Vision Transformer base, patches of 16",
    "vit_small": "Vision Transformer small, patches of 16",
    "vit_tiny": "Vision Transformer tiny, patches of 16",
    "wide_resnet50_2": "Wide ResNet-50, bottlenecks twice as wide",
}


def describe_networks() -> list[dict[str, Any]]:
    """Name, one line and default parameters of every network of the zoo."""
    from tunefleet.zoo.catalogue import CATALOGUE

    return [
        {
            "name": name,
            "about": ABOUT.get(name, ""),
            "parameters": {k: p.default for k, p in entry.parameters.items() if k != "seed"},
        }
        for name, entry in sorted(CATALOGUE.items())
    ]
