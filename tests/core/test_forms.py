from __future__ import annotations

import pytest

from tunefleet.core.forms import WINOGRAD_BLOCK, has_peak_of_floats, intrinsic_of, is_winograd

OURS = '[[["Tensorize", ["l39"], ["tunefleet.vnni.8x4", 1], []]], []]'
SHORT = '[[["Tensorize",["l39"],["tunefleet.sdot.4x4",1],[]]],[]]'
OTHERS = '[[["Tensorize",["l39"],["dot_16x4_vnni",1],[]]],[]]'
PLAIN = '[[["GetSBlock",[],["conv2d_nhwc","main"],["b0"]]],[]]'
WINOGRAD = f'[[["GetSBlock",[],["{WINOGRAD_BLOCK}","main"],["b0"]]],[]]'


@pytest.mark.parametrize(
    ("trace", "intrinsic"),
    [(OURS, "vnni.8x4"), (SHORT, "sdot.4x4"), (OTHERS, ""), (PLAIN, ""), ("", "")],
)
def test_a_trace_names_its_intrinsic(trace: str, intrinsic: str) -> None:
    assert intrinsic_of(trace) == intrinsic


def test_only_plain_programs_have_a_share_of_the_peak_of_floats() -> None:
    assert [has_peak_of_floats(trace) for trace in (PLAIN, OURS, WINOGRAD)] == [True, False, False]
    assert is_winograd(WINOGRAD)
