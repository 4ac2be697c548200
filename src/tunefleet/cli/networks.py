"""The zoo in words, for people who choose a network from a list."""

from __future__ import annotations

from typing import Any

ABOUT = {
    "bert_2l": "BERT with the width of base and 2 of its 12 layers",
    "bert_base": "BERT base, 12 layers of width 768",
    "bert_tiny": "BERT tiny as in TenSet, 6 layers of width 512",
    "densenet121": "DenseNet-121, convolutions over concatenated features",
    "gpt2_small": "GPT-2 small, one pass over a prompt",
    "inception_v3": "Inception v3, parallel branches of convolutions",
    "mobilenet_v2": "MobileNetV2, depthwise convolutions for small devices",
    "resnet18": "ResNet-18, the smallest residual network",
    "resnet50": "ResNet-50, the usual yardstick",
    "shufflenet_v2": "ShuffleNetV2, half of the channels shuffled per unit",
    "squeezenet": "SqueezeNet 1.1, few weights",
    "tiny_cnn": "a few small operators, tuned within minutes",
    "vgg16": "VGG-16, large plain convolutions",
    "vit_small": "Vision Transformer small, patches of 16",
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
