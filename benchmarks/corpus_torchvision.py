"""Networks of torchvision: classifiers, segmentation, video, optical flow, detectors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from corpus import Architecture, Example

#: name: (family, extent of the image). Multiples of 32 where the network allows any.
_CLASSIFIERS = {
    "alexnet": ("alexnet", 96),
    "convnext_tiny": ("convnext", 64),
    "convnext_small": ("convnext", 64),
    "densenet121": ("densenet", 64),
    "densenet161": ("densenet", 64),
    "densenet169": ("densenet", 64),
    "densenet201": ("densenet", 64),
    "efficientnet_b0": ("efficientnet", 64),
    "efficientnet_b1": ("efficientnet", 64),
    "efficientnet_b2": ("efficientnet", 64),
    "efficientnet_b3": ("efficientnet", 96),
    "efficientnet_v2_s": ("efficientnet", 64),
    "googlenet": ("googlenet", 64),
    "inception_v3": ("inception", 96),
    "maxvit_t": ("maxvit", 224),
    "mnasnet0_5": ("mnasnet", 64),
    "mnasnet0_75": ("mnasnet", 64),
    "mnasnet1_0": ("mnasnet", 64),
    "mnasnet1_3": ("mnasnet", 64),
    "mobilenet_v2": ("mobilenet", 64),
    "mobilenet_v3_large": ("mobilenet", 64),
    "mobilenet_v3_small": ("mobilenet", 64),
    "regnet_x_400mf": ("regnet", 64),
    "regnet_x_800mf": ("regnet", 64),
    "regnet_x_1_6gf": ("regnet", 64),
    "regnet_y_400mf": ("regnet", 64),
    "regnet_y_800mf": ("regnet", 64),
    "regnet_y_1_6gf": ("regnet", 64),
    "resnet18": ("resnet", 64),
    "resnet34": ("resnet", 64),
    "resnet50": ("resnet", 64),
    "resnet101": ("resnet", 64),
    "resnet152": ("resnet", 64),
    "resnext50_32x4d": ("resnext", 64),
    "resnext101_32x8d": ("resnext", 64),
    "wide_resnet50_2": ("resnet", 64),
    "shufflenet_v2_x0_5": ("shufflenet", 64),
    "shufflenet_v2_x1_0": ("shufflenet", 64),
    "shufflenet_v2_x1_5": ("shufflenet", 64),
    "shufflenet_v2_x2_0": ("shufflenet", 64),
    "squeezenet1_0": ("squeezenet", 64),
    "squeezenet1_1": ("squeezenet", 64),
    "swin_t": ("swin", 224),
    "swin_s": ("swin", 64),
    "swin_v2_t": ("swin", 64),
    "vgg11": ("vgg", 64),
    "vgg11_bn": ("vgg", 64),
    "vgg13": ("vgg", 64),
    "vgg16": ("vgg", 64),
    "vgg16_bn": ("vgg", 64),
    "vgg19": ("vgg", 64),
    "vit_b_16": ("vit", 64),
    "vit_b_32": ("vit", 224),
}
_SEGMENTATION = {
    "deeplabv3_mobilenet_v3_large": "deeplab",
    "deeplabv3_resnet50": "deeplab",
    "fcn_resnet50": "fcn",
    "lraspp_mobilenet_v3_large": "lraspp",
}
#: name: (frames, extent)
_VIDEO = {
    "r3d_18": (8, 64),
    "mc3_18": (8, 64),
    "r2plus1d_18": (8, 64),
    "s3d": (14, 224),
    "mvit_v1_b": (16, 224),
    "mvit_v2_s": (16, 224),
    "swin3d_t": (8, 64),
}
_FLOW = ("raft_small", "raft_large")
#: Refinements of the flow: each is a copy of the same operators in an export.
_FLOW_UPDATES = 3
#: torch.export takes no detector, since they look at how many boxes they found; those with regions
#: of interest (Faster, Mask and Keypoint R-CNN) need torchvision's compiled operators, of another
#: build of torch than the one here.
_DETECTORS = {
    "ssdlite320_mobilenet_v3_large": 320,
    "ssd300_vgg16": 300,
    "retinanet_resnet50_fpn": 128,
    "fcos_resnet50_fpn": 128,
}

_OPERATORS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, "
    "SymInt pooled_width, int sampling_ratio, bool aligned) -> Tensor",
)
_library: Any = None


def networks() -> list[Architecture]:
    """All of them, each built when it is asked for."""
    found: list[tuple[str, str, Callable[[], Example]]] = []
    every = partial(Architecture, "torchvision")
    for name, (family, extent) in _CLASSIFIERS.items():
        found.append((name, family, partial(_classifier, name, extent)))
    for name, family in _SEGMENTATION.items():
        found.append((name, family, partial(_segmentation, name)))
    for name, (frames, extent) in _VIDEO.items():
        found.append((name, name.split("_")[0], partial(_video, name, frames, extent)))
    for name in _FLOW:
        found.append((name, "raft", partial(_flow, name)))
    detectors = [
        every(name, name.split("_")[0], partial(_detector, name, extent), ("onnx",))
        for name, extent in _DETECTORS.items()
    ]
    return [*(every(name, family, build) for name, family, build in found), *detectors]


def load() -> Any:
    """torchvision, also beside a build of torch that its compiled operators do not fit."""
    global _library
    import torch

    try:
        import torchvision
    except RuntimeError:
        if _library is not None:
            raise
        _library = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
        for operator in _OPERATORS:
            _library.define(operator)
        import torchvision

        torchvision.extension._has_ops = _has_operators
        _library.impl("nms", _nms, "CPU")
    return torchvision


def _has_operators() -> bool:
    """Said to TorchScript too, which reads this source."""
    return True


def _nms(boxes: Any, scores: Any, threshold: float) -> Any:
    """The boxes that no better one covers by more than `threshold`, the best first."""
    import torch
    from torchvision.ops import box_iou

    remaining, kept = scores.argsort(descending=True), []
    while len(remaining):
        best, others = remaining[0], remaining[1:]
        kept.append(best)
        remaining = others[box_iou(boxes[best][None], boxes[others])[0] <= threshold]
    return torch.stack(kept) if kept else torch.zeros(0, dtype=torch.int64)


def _example(module: Any, inputs: tuple[Any, ...], names: tuple[str, ...]) -> Example:
    from corpus_weights import calibrated

    return Example(calibrated(module, inputs), inputs, names, {n: {0: "batch"} for n in names})


def _image(*extents: int) -> Any:
    import torch

    return torch.randn(1, 3, *extents, generator=torch.Generator().manual_seed(1))


def _classifier(name: str, extent: int) -> Example:
    options: dict[str, Any] = {}
    if name in ("googlenet", "inception_v3"):
        options = {"aux_logits": False, "init_weights": False}
    if name.startswith("vit"):
        options = {"image_size": extent}
    if name.startswith("maxvit"):
        options = {"input_size": (extent, extent)}
    module = load().models.get_model(name, weights=None, **options)
    return _example(module, (_image(extent, extent),), ("x",))


def _segmentation(name: str) -> Example:
    module = load().models.get_model(name, weights=None, weights_backbone=None)
    return _example(module, (_image(64, 96),), ("x",))


def _video(name: str, frames: int, extent: int) -> Example:
    module = load().models.get_model(name, weights=None)
    return _example(module, (_image(frames, extent, extent),), ("x",))


def _flow(name: str) -> Example:
    import torch

    class Flow(torch.nn.Module):
        def __init__(self, raft: Any) -> None:
            super().__init__()
            self.raft = raft

        def forward(self, first: Any, second: Any) -> Any:
            return self.raft(first, second, num_flow_updates=_FLOW_UPDATES)[-1]

    module = Flow(load().models.get_model(name, weights=None))
    first = _image(128, 128)
    second = torch.roll(first, (2, 3), (2, 3))
    return _example(module, (first, second), ("first", "second"))


def _detector(name: str, extent: int) -> Example:
    import torch

    from corpus_weights import calibrated

    class Detector(torch.nn.Module):
        """Takes one image, and returns the tensors of what was found in it."""

        def __init__(self, network: Any) -> None:
            super().__init__()
            self.network = network

        def forward(self, image: Any) -> Any:
            (found,) = self.network([image])
            return tuple(found[key] for key in sorted(found))

    options = {"min_size": extent, "max_size": extent} if extent == 128 else {}
    network = load().models.get_model(name, weights=None, weights_backbone=None, **options)
    image = _image(extent, extent)[0]
    module = calibrated(Detector(network), (image,))
    return Example(module, (image,), ("image",), {}, traced=True)
