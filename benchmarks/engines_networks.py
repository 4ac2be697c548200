"""The networks that engines are compared on: torchvision's, timm's and transformers' own, and the
designs that these lack (reading text, speech, segmentation), with seeded random weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from corpus import Example
from corpus_torchvision import load

_SEED = 1


class _Flat(nn.Module):
    """A network's tensors, whatever it returns them in."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        from torch.utils import _pytree as pytree

        found = self.network(*inputs)
        leaves = pytree.tree_leaves(found.to_tuple() if hasattr(found, "to_tuple") else found)
        return tuple(leaf for leaf in leaves if isinstance(leaf, Tensor))


def _example(network: nn.Module, *inputs: Tensor) -> Example:
    _spread(network)
    network = _Flat(network).eval()
    _calibrate(network, inputs)
    return Example(network, inputs, tuple(f"input{i}" for i in range(len(inputs))), {})


def _spread(network: nn.Module) -> None:
    """Biases and scales of no particular network: zeros and ones could be dropped."""
    for name, parameter in network.named_parameters():
        if name.endswith("bias"):
            nn.init.uniform_(parameter, -0.1, 0.1)
        elif parameter.ndim == 1:
            nn.init.uniform_(parameter, 0.5, 1.5)


def _calibrate(network: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    """Batch norms get the statistics of what passes them: with others, outputs of deep networks
    vanish or overflow, and comparing them says nothing."""
    norms = [m for m in network.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    for norm in norms:
        norm.momentum = None  # the average of what it sees
        norm.reset_running_stats()
        norm.train()
    if norms:
        with torch.no_grad():
            for _ in range(2):
                network(*(torch.randn(4, *each.shape[1:]) for each in inputs))
    network.eval()


def _torchvision(name: str, size: int = 224) -> Example:
    load()
    import torchvision

    return _example(torchvision.models.get_model(name), torch.randn(1, 3, size, size))


def _timm(name: str, **options: Any) -> Example:
    load()
    import timm

    network = timm.create_model(name, **options)
    _, height, width = timm.models.get_pretrained_cfg(name).input_size
    size = options.get("img_size", height), options.get("img_size", width)
    return _example(network, torch.randn(1, 3, *size))


def _ids(config: Any, length: int) -> Tensor:
    return torch.randint(0, config.vocab_size, (1, length))


def _distilbert() -> Example:
    load()
    from transformers import DistilBertConfig, DistilBertModel

    config = DistilBertConfig()
    return _example(DistilBertModel(config), _ids(config, 128))


def _bert() -> Example:
    load()
    from transformers import BertConfig, BertModel

    config = BertConfig()
    return _example(BertModel(config), _ids(config, 64))


class _FromEmbeddings(nn.Module):
    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, embeddings: Tensor) -> Tensor:
        found: Tensor = self.network(inputs_embeds=embeddings, use_cache=False).last_hidden_state
        return found


def _llama() -> Example:
    """One decoder layer, 62 MB of weights, 64 tokens."""
    load()
    from transformers import LlamaConfig, LlamaModel

    config = LlamaConfig(
        hidden_size=1024, intermediate_size=3584, num_hidden_layers=1, num_attention_heads=16,
        num_key_value_heads=16, vocab_size=128,
    )  # fmt: skip
    return _example(_FromEmbeddings(LlamaModel(config)), torch.randn(1, 64, 1024))


def _qwen() -> Example:
    """Two decoder layers of Qwen3-0.6B's sizes, 96 tokens."""
    load()
    from transformers import Qwen3Config, Qwen3Model

    config = Qwen3Config(
        hidden_size=1024, intermediate_size=3072, num_hidden_layers=2, num_attention_heads=16,
        num_key_value_heads=8, head_dim=128, vocab_size=128,
    )  # fmt: skip
    return _example(_FromEmbeddings(Qwen3Model(config)), torch.randn(1, 96, 1024))


def _super_resolution(width: int = 48, size: int = 160, scale: int = 2) -> nn.Sequential:
    """Five convolutions of 3x3 and a pixel shuffle (after Shi et al. 2016,
    https://arxiv.org/abs/1609.05158)."""
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1), nn.ReLU()]
    for _ in range(5):
        layers += [nn.Conv2d(width, width, 3, padding=1), nn.ReLU()]
    layers += [nn.Conv2d(width, 3 * scale * scale, 3, padding=1), nn.PixelShuffle(scale)]
    return nn.Sequential(*layers)


class _Heads(nn.Module):
    """A detector up to the boxes and scores of every anchor; what selects among them is code."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.backbone, self.head = network.backbone, network.head

    def forward(self, image: Tensor) -> list[Tensor]:
        heads = self.head(list(self.backbone(image).values()))
        return [heads["cls_logits"], heads["bbox_regression"]]


def _ssdlite() -> Example:
    load()
    import torchvision

    network = torchvision.models.detection.ssdlite320_mobilenet_v3_large(weights_backbone=None)
    return _example(_Heads(network), torch.randn(1, 3, 320, 320))


def _conv(inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    )


class _Crnn(nn.Module):
    """Reads a line of text: convolutions, two bidirectional LSTMs, a character for each column
    (Shi et al. 2015, https://arxiv.org/abs/1507.05717)."""

    def __init__(self, characters: int = 96) -> None:
        super().__init__()
        self.features = nn.Sequential(
            _conv(1, 64), nn.MaxPool2d(2),
            _conv(64, 128), nn.MaxPool2d(2),
            _conv(128, 256), _conv(256, 256), nn.MaxPool2d((2, 1)),
            _conv(256, 512), _conv(512, 512), nn.MaxPool2d((4, 1)),
        )  # fmt: skip
        self.sequence = nn.LSTM(512, 256, 2, batch_first=True, bidirectional=True)
        self.characters = nn.Linear(512, characters)

    def forward(self, line: Tensor) -> Tensor:
        columns = self.features(line).squeeze(2).transpose(1, 2)
        found: Tensor = self.characters(self.sequence(columns)[0])
        return found


class _Speech(nn.Module):
    """Spectrogram frames to characters: two strided convolutions, three LSTMs (after Amodei et al.
    2015, https://arxiv.org/abs/1512.02595)."""

    def __init__(self, bands: int = 80, width: int = 512, characters: int = 32) -> None:
        super().__init__()
        self.features = nn.Sequential(_conv(1, 32, 5, 2), _conv(32, 32, 3, 2))
        self.sequence = nn.LSTM(32 * (bands // 4), width, 3, batch_first=True)
        self.characters = nn.Linear(width, characters)

    def forward(self, frames: Tensor) -> Tensor:
        columns = self.features(frames).permute(0, 2, 1, 3).flatten(2)
        found: Tensor = self.characters(self.sequence(columns)[0])
        return found


class _UNet(nn.Module):
    """Segmentation (Ronneberger et al. 2015, https://arxiv.org/abs/1505.04597), half as wide."""

    def __init__(self, widths: tuple[int, ...] = (32, 64, 128, 256, 512), classes: int = 2) -> None:
        super().__init__()
        pairs = list(zip((3, *widths), widths, strict=False))
        self.down = nn.ModuleList(nn.Sequential(_conv(i, o), _conv(o, o)) for i, o in pairs)
        back = list(zip(widths[::-1], widths[-2::-1], strict=False))
        self.up = nn.ModuleList(nn.ConvTranspose2d(i, o, 2, 2) for i, o in back)
        self.merge = nn.ModuleList(nn.Sequential(_conv(2 * o, o), _conv(o, o)) for _, o in back)
        self.classes = nn.Conv2d(widths[0], classes, 1)

    def forward(self, image: Tensor) -> Tensor:
        levels = [self.down[0](image)]
        for down in list(self.down)[1:]:
            levels.append(down(nn.functional.max_pool2d(levels[-1], 2)))
        found = levels.pop()
        for up, merge in zip(self.up, self.merge, strict=True):
            found = merge(torch.cat([up(found), levels.pop()], dim=1))
        classes: Tensor = self.classes(found)
        return classes


#: By name; each builds the same network with the same weights in every process (`build`).
NETWORKS: dict[str, Callable[[], Example]] = {
    "mobilenet_v2": lambda: _torchvision("mobilenet_v2"),
    "mobilenet_v3_large": lambda: _torchvision("mobilenet_v3_large"),
    "efficientnet_b0": lambda: _torchvision("efficientnet_b0"),
    "resnet50": lambda: _torchvision("resnet50"),
    "resnext50": lambda: _torchvision("resnext50_32x4d"),
    "convnext_tiny": lambda: _torchvision("convnext_tiny"),
    "distilbert": _distilbert,
    "bert_base": _bert,
    "vit_small": lambda: _timm("vit_small_patch16_224"),
    "swin_tiny": lambda: _timm("swin_tiny_patch4_window7_224"),
    "llama_layer": _llama,
    "ssdlite": _ssdlite,
    "crnn": lambda: _example(_Crnn(), torch.randn(1, 1, 32, 160)),
    "speech_lstm": lambda: _example(_Speech(), torch.randn(1, 1, 200, 80)),
    "unet": lambda: _example(_UNet(), torch.randn(1, 3, 128, 128)),
    # With sizes that divide into few tiles.
    "super_resolution": lambda: _example(_super_resolution(), torch.randn(1, 3, 160, 160)),
    "mobilenetv4": lambda: _timm("mobilenetv4_conv_medium"),
    "dinov2_small": lambda: _timm("vit_small_patch14_reg4_dinov2", img_size=224),
    "regnety_008": lambda: _timm("regnety_008"),
    "efficientvit_b1": lambda: _timm("efficientvit_b1"),
    "qwen3": _qwen,
    # `random.Random(5).sample(timm.list_models(), 10)`, timm 1.0.28.
    "xcit_nano_12_p16": lambda: _timm("xcit_nano_12_p16_224"),
    "mnasnet_075": lambda: _timm("mnasnet_075"),
    "res2net50_48w_2s": lambda: _timm("res2net50_48w_2s"),
    "vit_betwixt_384": lambda: _timm("vit_betwixt_patch16_reg4_gap_384"),
    "coatnet_nano_cc": lambda: _timm("coatnet_nano_cc_224"),
    "test_efficientnet_gn": lambda: _timm("test_efficientnet_gn"),
    "maxxvitv2_rmlp_large": lambda: _timm("maxxvitv2_rmlp_large_rw_224"),
    "convnextv2_small": lambda: _timm("convnextv2_small"),
    "fastvit_mci3": lambda: _timm("fastvit_mci3"),
    "timm_efficientnet_b0": lambda: _timm("efficientnet_b0"),
}


def build(name: str) -> Example:
    torch.manual_seed(_SEED)
    return NETWORKS[name]()
