"""Fourier transforms as matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: A matrix with more numbers makes artifacts too large.
MOST_NUMBERS = 2**24


def transform_matrix(
    transform: Callable[[NDArray[Any]], NDArray[Any]], count: int, parts: int
) -> NDArray[Any]:
    """A linear transform of `count` numbers as a matrix (count * parts, ...). Numbers in complex
    have two parts, real and imaginary ones being neighbours."""
    basis = np.eye(count)
    rows = basis[:, None] if parts == 1 else np.stack([basis, 1j * basis], 1)
    image = transform(rows.reshape(count * parts, count))
    if np.iscomplexobj(image):
        image = np.stack([image.real, image.imag], -1).reshape(count * parts, -1)
    return image
