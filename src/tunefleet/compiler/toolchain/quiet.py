"""Keeps the chatter of source frameworks and of TVM's C++ away from the user's terminal.

Whoever wants to draw meanwhile (the live view) keeps a duplicate of file descriptor 2. In a worker,
where that is a log, what C++ says stays: it may be its last words.
"""

from __future__ import annotations

import contextlib
import gc
import io
import logging
import os
import traceback
import warnings
from collections.abc import Iterator

_kept = False


def keep_output() -> None:
    """From now on, leave file descriptor 2 of this process as it is: it is a log."""
    global _kept
    _kept = True


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Drops warnings, log records below CRITICAL and prints, those of C++ included.

    It changes the whole process for the time being, as do the modules it silences.
    """
    before = logging.root.manager.disable
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
        _silent_descriptor(),
    ):
        warnings.simplefilter("ignore")
        logging.disable(logging.ERROR)
        try:
            yield
        finally:
            logging.disable(before)


def forget_frames(exc: BaseException) -> None:
    """Destroys what the frames of `exc` hold, now and in silence.

    An importer that failed leaves a half-filled block builder behind, which complains to stderr
    from C++ whenever it is destroyed: after our own message, or as the process ends.
    """
    with _silent_descriptor():
        traceback.clear_frames(exc.__traceback__)
        gc.collect()


@contextlib.contextmanager
def _silent_descriptor() -> Iterator[None]:
    """What is written to file descriptor 2 goes nowhere, unless that is a log."""
    if _kept:
        yield
        return
    stderr = os.dup(2)
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, 2)
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(null)
