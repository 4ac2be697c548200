"""Packages that not everybody has installed, or that are installed and do not load."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence

from tunefleet.errors import SetupError

#: What is imported of packages that load nothing before they are asked.
_LOADS = {
    "ai_edge_litert": "ai_edge_litert.interpreter",
    "transformers": "transformers.modeling_utils",
}
_LONGEST = 160


def require(what: str, modules: Sequence[str], cure: str) -> None:
    """Import `modules`. Raises SetupError, beginning with `what`, where the package of one is not
    installed, with the `cure`, or does not load: most often since another package, such as
    torchvision, is of a version that does not fit it."""
    missing = list(dict.fromkeys(_package(name) for name in modules if not _installed(name)))
    if missing:
        raise SetupError(f"{what} needs {' and '.join(missing)}, not installed here", cure=cure)
    for name in modules:
        try:
            importlib.import_module(_LOADS.get(name, name))
        except MemoryError:
            raise
        except Exception as error:
            raise SetupError(
                f"{what} needs {_package(name)}, which does not load: {_why(error)}",
                cure="see `pip check`, and install versions that fit each other",
            ) from error


def _package(module: str) -> str:
    """What `pip` calls it."""
    return module.partition(".")[0].replace("_", "-")


def _installed(module: str) -> bool:
    return importlib.util.find_spec(module.partition(".")[0]) is not None


def _why(error: BaseException) -> str:
    """What was wrong first, and not what packages make of it."""
    while error.__cause__ is not None:
        error = error.__cause__
    line = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    text = f"{type(error).__name__}: {line}" if line else type(error).__name__
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
