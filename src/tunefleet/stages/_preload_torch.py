"""Imported once by the fork server where a network is PyTorch's: its import, its check and its
measurement run in processes of their own, and each would take seconds for it."""

import gc
from contextlib import suppress

gc.disable()  # as `_preload` does
with suppress(Exception):  # whoever needs it says what is wrong
    import torch._dynamo
    import torch.export._trace  # noqa: F401

gc.freeze()
gc.enable()
