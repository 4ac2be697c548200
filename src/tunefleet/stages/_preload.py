"""Imported once by the fork server, so that every worker starts with a warm compiler.

Nothing here may start a thread: a fork after TVM's thread pool was used hangs.
"""

import gc
import logging
import os
import signal

# What is imported stays: to look for garbage among it takes an eighth of the imports' time.
gc.disable()

# Ctrl-C is for the driver. Python's fork server ignores it only once all of this is loaded, and
# would complain of it until then; whoever started this process held it back (`_spawn`).
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})

# Pebble logs what keeps a worker from starting, as a traceback; its pool reports it in one line.
logging.getLogger().addHandler(logging.NullHandler())

# Read once, when NumPy is loaded: cost models predict beside builds, and two threads of OpenBLAS
# that wait for each other on busy cores take several times as long as one.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

from tunefleet.compiler.toolchain import load_tvm  # noqa: E402

load_tvm()

import tunefleet.stages.work  # noqa: E402, F401  (needs tvm loaded our way first)

# What is loaded now lives as long as a worker: its collector need not walk it again and again.
gc.freeze()
gc.enable()
