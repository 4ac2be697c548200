"""Random weights with which every layer of a network counts.

Fresh networks often hide their layers: scales of layers of 1e-6, heads and last normalisations of
zeros, signals that fade from convolution to convolution. A wrong import of such a network gives
right outputs. Here no parameter stays constant, and one run through the network brings what each
convolution and linear layer gives to a standard deviation of one.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

_LAYERS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose2d, nn.Linear)
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
#: Smaller constants are scales of residual branches, or zeros where training begins.
_SMALL = 0.2


def calibrated(module: nn.Module, inputs: tuple[Any, ...], seed: int = 0) -> nn.Module:
    """`module` in eval mode, with its parameters and statistics seeded, in place."""
    torch.manual_seed(seed)
    module.eval()
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if parameter.is_floating_point():
                _spread(name, parameter)
        hooks = [
            child.register_forward_hook(_unit_output)
            for child in module.modules()
            if isinstance(child, _LAYERS)
        ]
        hooks += [
            child.register_forward_pre_hook(_statistics)
            for child in module.modules()
            if isinstance(child, _BATCH_NORMS)
        ]
        module(*inputs)
    for hook in hooks:
        hook.remove()
    return module


def _spread(name: str, parameter: torch.Tensor) -> None:
    """Replaces a constant parameter by random values about what it stands for."""
    if bool((parameter != parameter.reshape(-1)[0]).any()) or parameter.numel() == 0:
        return
    value = float(parameter.reshape(-1)[0])
    last = name.rpartition(".")[2]
    if last == "bias":
        parameter.normal_(0.0, 0.1)
    elif abs(value) > _SMALL:
        parameter.mul_(torch.empty_like(parameter).uniform_(0.8, 1.2))
    elif value == 0.0 and parameter.dim() > 1 and last == "weight":
        nn.init.kaiming_normal_(parameter)
    elif value == 0.0 and last != "weight":
        parameter.normal_(0.0, 0.2)
    else:
        parameter.uniform_(0.5, 1.0)


def _unit_output(layer: nn.Module, inputs: Any, output: Any) -> Any:
    """Scales the weight for outputs of standard deviation one, once for a layer that is shared."""
    if getattr(layer, "scaled", False) or output.numel() < 2:
        return None
    spread = float(output.std())
    if not 1e-12 < spread < 1e12:
        return None
    layer.scaled = True  # type: ignore[assignment]
    for parameter in (layer.weight, layer.bias):
        if parameter is not None:
            parameter.div_(spread)  # type: ignore[operator]
    return output / spread


def _statistics(norm: Any, inputs: tuple[Any, ...]) -> None:
    """About those of what the norm is given. One variance for all channels: dividing by those of a
    few pixels would make a network of many layers chaotic, and rounding errors grow a thousandfold.
    """
    if getattr(norm, "scaled", False) or norm.running_mean is None:
        return
    (x,) = inputs
    norm.scaled = True
    axes = [axis for axis in range(x.dim()) if axis != 1]
    norm.running_mean.copy_(0.5 * x.mean(axes))
    spread = torch.empty_like(norm.running_var).uniform_(0.8, 1.2)
    norm.running_var.copy_(spread * max(float(x.var()), 1e-6) if x.numel() > 1 else spread)
