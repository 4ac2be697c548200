"""The configurations from which records are collected for learned cost models.

The families and sizes follow TenSet (Zheng et al. 2021, `scripts/dump_network_info.py`), with
newer networks added. Networks made of the same layers (ResNet-18 and -34, BERT medium and large)
come at different sizes: at the same size they would bring the same tasks.
"""

from __future__ import annotations

from itertools import zip_longest

_SIZES = ("", "batch=4&size=240", "batch=2&size=256", "batch=8")
_OTHER_SIZES = ("size=192", "batch=4&size=160", "batch=2&size=288")
_LENGTHS = ("", "batch=4&size=64", "batch=2&size=256")
_OTHER_LENGTHS = ("size=96", "batch=2&size=192", "batch=4&size=32")

# One round takes the next configuration of each row: neighbours are of different kinds, so that
# any beginning of the whole is diverse.
_ROWS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("resnet50", _SIZES),
    ("bert_base", _LENGTHS),
    ("mobilenet_v2", _SIZES),
    ("swin_tiny", ("", "batch=2", "batch=4")),
    ("resnext50_32x4d", _SIZES),
    ("dcgan", ("", "batch=4&size=80", "batch=8&size=96", "batch=2")),
    ("bert_tiny", _LENGTHS),
    ("efficientnet_b0", _SIZES),
    ("resnet3d18", ("", "batch=2&size=128", "batch=4&size=144")),
    ("densenet121", _SIZES),
    ("gpt2_small", ("", "batch=2&size=128", "batch=4&size=256")),
    ("convnext_tiny", _SIZES),
    ("vgg16", ("", "batch=4&size=240")),
    ("llama_tiny", ("", "batch=4&size=128", "batch=2&size=256")),
    ("inception_v3", ("", "batch=2", "batch=4")),
    ("vit_small", _SIZES),
    ("shufflenet_v2", _SIZES),
    ("bert_large", _OTHER_LENGTHS),
    ("wide_resnet50_2", _SIZES),
    ("t5_small", _LENGTHS),
    ("mobilenet_v3_large", _SIZES),
    ("mixer_small", _SIZES),
    ("resnet18", _SIZES),
    ("bert_medium", _LENGTHS),
    ("squeezenet", _SIZES),
    ("vit_base", _OTHER_SIZES),
    ("mobilenet_v3_small", _SIZES),
    ("bert_small", _OTHER_LENGTHS),
    ("resnet101", _OTHER_SIZES),
    ("gpt2_medium", ("size=96", "batch=2&size=32")),
    ("vgg11", ("size=192", "batch=4&size=160")),
    ("vit_tiny", _OTHER_SIZES),
    ("resnet34", _OTHER_SIZES),
    ("distilbert", _OTHER_LENGTHS),
)


def _rounds() -> tuple[str, ...]:
    rows = [[f"zoo:{name}?{query}".removesuffix("?") for query in row] for name, row in _ROWS]
    return tuple(spec for column in zip_longest(*rows) for spec in column if spec is not None)


#: Canonical specifications, each once. The first 34 hold every network once.
CONFIGURATIONS: tuple[str, ...] = _rounds()

#: TenSet's test networks, to be left out of training by their tasks: networks share some.
HELD_OUT: tuple[str, ...] = (
    "zoo:resnet50",
    "zoo:mobilenet_v2",
    "zoo:resnext50_32x4d",
    "zoo:bert_tiny",
    "zoo:bert_base",
)
