"""What the zoo holds: each network's parameters, their limits, and where it is built.

Nothing here imports torch, so that a specification is checked and named at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

#: Part of every digest: raise it when a change alters the graph or the weights of any network.
ZOO_VERSION = 1


@dataclass(frozen=True, slots=True)
class Parameter:
    """An integer parameter: default, inclusive limits, and the step it must be a multiple of."""

    default: int
    least: int
    most: int
    step: int = 1


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """One network: `factory` is ``module:function`` below this package."""

    factory: str
    parameters: Mapping[str, Parameter]
    packages: tuple[str, ...] = ("torch",)


def _image(
    factory: str, *, size: int = 224, least: int = 32, step: int = 1, classes: int = 1000
) -> CatalogueEntry:
    return CatalogueEntry(
        factory,
        MappingProxyType(
            {
                "batch": Parameter(1, 1, 1024),
                "classes": Parameter(classes, 1, 100_000),
                "seed": Parameter(0, 0, 2**31 - 1),
                "size": Parameter(size, least, 4096, step),
            }
        ),
    )


def _generator(factory: str, *, size: int, least: int, step: int) -> CatalogueEntry:
    return CatalogueEntry(
        factory,
        MappingProxyType(
            {
                "batch": Parameter(1, 1, 1024),
                "seed": Parameter(0, 0, 2**31 - 1),
                "size": Parameter(size, least, 4096, step),
            }
        ),
    )


def _text(factory: str, *, size: int, most: int) -> CatalogueEntry:
    return CatalogueEntry(
        factory,
        MappingProxyType(
            {
                "batch": Parameter(1, 1, 1024),
                "seed": Parameter(0, 0, 2**31 - 1),
                "size": Parameter(size, 1, most),
            }
        ),
        packages=("torch", "transformers"),
    )


CATALOGUE: Mapping[str, CatalogueEntry] = MappingProxyType(
    {
        "bert_2l": _text("transformers_:bert_2l", size=128, most=512),
        "bert_base": _text("transformers_:bert_base", size=128, most=512),
        "bert_large": _text("transformers_:bert_large", size=128, most=512),
        "bert_medium": _text("transformers_:bert_medium", size=128, most=512),
        "bert_small": _text("transformers_:bert_small", size=128, most=512),
        "bert_tiny": _text("transformers_:bert_tiny", size=128, most=512),
        "convnext_tiny": _image("cnn_convnext:convnext_tiny"),
        "dcgan": _generator("cnn_dcgan:dcgan", size=64, least=32, step=16),
        "densenet121": _image("cnn_densenet:densenet121"),
        "distilbert": _text("transformers_:distilbert", size=128, most=512),
        "efficientnet_b0": _image("cnn_efficientnet:efficientnet_b0"),
        "gpt2_medium": _text("transformers_:gpt2_medium", size=64, most=1024),
        "gpt2_small": _text("transformers_:gpt2_small", size=64, most=1024),
        "inception_v3": _image("cnn_inception:inception_v3", size=299, least=75),
        "llama_tiny": _text("transformers_:llama_tiny", size=64, most=2048),
        "mixer_small": _image("mixer:mixer_small", least=16, step=16),
        "mobilenet_v2": _image("cnn_mobile:mobilenet_v2"),
        "mobilenet_v3_large": _image("cnn_mobilenet_v3:mobilenet_v3_large"),
        "mobilenet_v3_small": _image("cnn_mobilenet_v3:mobilenet_v3_small"),
        "resnet101": _image("cnn_resnet:resnet101"),
        "resnet18": _image("cnn_resnet:resnet18"),
        "resnet34": _image("cnn_resnet:resnet34"),
        "resnet3d18": _image("cnn_resnet3d:resnet3d18", size=112, least=16, classes=400),
        "resnet50": _image("cnn_resnet:resnet50"),
        "resnext50_32x4d": _image("cnn_resnet:resnext50_32x4d"),
        "shufflenet_v2": _image("cnn_mobile:shufflenet_v2"),
        "squeezenet": _image("cnn_plain:squeezenet"),
        "swin_tiny": _image("swin:swin_tiny", least=224, step=224),
        "t5_small": _text("transformers_:t5_small", size=128, most=2048),
        "tiny_cnn": _image("cnn_plain:tiny_cnn", size=16, least=8, classes=10),
        "vgg11": _image("cnn_plain:vgg11"),
        "vgg16": _image("cnn_plain:vgg16"),
        "vit_base": _image("vit:vit_base", least=16, step=16),
        "vit_small": _image("vit:vit_small", least=16, step=16),
        "vit_tiny": _image("vit:vit_tiny", least=16, step=16),
        "wide_resnet50_2": _image("cnn_resnet:wide_resnet50_2"),
    }
)
