"""Sessions of ONNX Runtime on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

#: What ONNX Runtime (1.31) does to a network that changes its outputs: it puts a pad of zeros into
#: the maximum pooling behind it, whose pads are less than any number.
WRONG_FUSIONS = ("Pad_Fusion",)

#: On an x86 processor without VNNI, ONNX Runtime adds products of unsigned and signed bytes in 16
#: bits, which saturates: most sums of 64 random products are wrong. With this setting it takes
#: weights as unsigned bytes, whose sums are exact and slower; elsewhere it changes nothing. It does
#: not cover QLinearMatMul since version 21 (1.31).
_EXACT_SUMS = "session.x64quantprecision"


def session_options(threads: int = 0) -> Any:
    """Options of a session without messages; `threads` is 0 for one per core."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return options


def open_session(
    source: Path | bytes,
    options: Any,
    *,
    exact: bool = True,
    disabled_optimizers: tuple[str, ...] = (),
) -> Any:
    """A session of a file or of the bytes of one. `exact`: sums of 8-bit integers do not saturate.
    Raises the errors of ONNX Runtime."""
    import onnxruntime

    def opened() -> Any:
        return onnxruntime.InferenceSession(
            source,
            options,
            providers=["CPUExecutionProvider"],
            disabled_optimizers=list(disabled_optimizers),
        )

    if not exact:
        return opened()
    options.add_session_config_entry(_EXACT_SUMS, "1")
    try:
        return opened()
    except Exception:
        # It makes the weights of convolutions of signed bytes unsigned, too, of which it then has
        # no program. Their sums are exact without it.
        options.add_session_config_entry(_EXACT_SUMS, "0")
        return opened()
