"""Made-up lines of auto_scheduler logs, good ones and spoilt ones."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

#: Of TVM's own continuous integration (Apache-2.0), shortened: github.com/tlc-pack/tenset,
#: commit 35774ed373f9, one record of each version of the format.
TVM_LINES = (
    r'{"i": [["[\"conv2d_layer\", 1, 7, 7, 512, 512, 3, 3, [1, 1], [1, 1]]", "cuda -keys=cuda,gpu '
    r'-max_num_threads=1024 -thread_warp_size=32"], [[], [["CI", 5], ["SP", 3, 0, 1, [1, 1, 1, 1], '
    r'1], ["FSP", 6, 0, 1, 3], ["PR", 3, 0, "auto_unroll_max_step$1024"]]]], '
    r'"r": [[0.000145], 0, 1.74, 1595315100], "v": "v0.2"}',
    r'{"i": [["[\"matmul_add\", 1024, 1024, 1024, \"float32\"]", "llvm -keys=cpu", [18, 64, 64, 0, '
    r'0, 0, 0, 0]], [[], [["SP", 2, 0, 1024, [2, 1, 4], 1], ["RE", 2, [0, 4, 1, 5, 8, 2]], ["FSP", '
    r'4, 0, 0, 2], ["CA", 2, 4, 3], ["FU", 4, [0, 1]], ["AN", 4, 0, 3]]]], '
    r'"r": [[0.0044742], 0, 0.335558, 1607112214], "v": "v0.3"}',
    r'{"i": [["[\"a5612fdeb9db4d579a75ec225ea4c06a\", 1, 112, 112, 64]", "cuda -keys=cuda,gpu", '
    r'[-1, 16, 64, 49152, 2147483647, 1024, 8, 32], "", 0], [[], [["CI", 4], ["FU", 5, [0, 1, 2, '
    r'3]], ["SP", 5, 0, 200704, [64], 1], ["AN", 5, 0, 5]]]], '
    r'"r": [[2.00968e-05], 0, 1.53065, 1606985193], "v": "v0.5"}',
    r'{"i": [["[\"sparse_dense\", 512, 512, [9831, 16, 1], \"float32\"]", "llvm -keys=cpu", [6, '
    r'64, 64, 0, 0, 0, 0, 0], "", 1, ["W_data", "W_indices"]], [[], [["CI", 8], ["CHW", 3, '
    r'"local"], ["CHR", 1, "shared", [3]], ["FFSP", 4, 0, [0, 1], 1, 1], ["CR", 1], ["RF", 2, '
    r'1, 0], ["SA", 1, 0, 32, 16]]]], "r": [[1e-3, 2E-3, 0.0015], 0, 3, 1614689820], "v": "v0.6"}',
)

FAILED = (
    r'{"i": [["[\"x\"]", "llvm", [8, 64, 64, 0, 0, 0, 0, 0], "", 0, []], [[], [["CI", 1]]]], '
    r'"r": [[1e+10], 6, 15, 1614689820], "v": "v0.6"}'
)

_small = st.integers(0, 40)
_some = st.lists(_small, max_size=4)
_text = st.text(st.sampled_from('ab é"\\,[]{}:$\n'), max_size=12) | st.sampled_from(
    ['], [[], [["', '], ["', ']]]], "r": [[', '], "v": "', '],[[],[["', "\u2028", "\U0001f600"]
)


def _step(kind: str, *arguments: Any) -> Any:
    return st.tuples(st.just(kind), *arguments).map(list)


STEPS = st.one_of(
    _step("AN", _small, _small, st.integers(0, 11)),
    _step("FU", _small, _some),
    _step("PR", _small, _small, st.just("auto_unroll_max_step$64") | _text),
    _step("RE", _small, _some),
    _step("SP", _small, _small, st.integers(0, 2**62), _some, st.integers(0, 1)),
    _step("FSP", _small, _small, _small, _small),
    _step("FFSP", _small, _small, _some, _small, st.integers(0, 1)),
    _step("SA", _small, _small, _small, _small),
    _step("CA", _small, _small, _small),
    _step("CI", _small),
    _step("CR", _small),
    _step("CHR", _small, st.just("shared") | _text, _some),
    _step("CHW", _small, st.just("local") | _text),
    _step("RF", _small, _small, _small),
)
_seconds = st.floats(0, 1e12) | st.integers(0, 10**12)
_more = st.tuples(
    st.lists(st.integers(-1, 2**31), min_size=8, max_size=8),
    _text,
    st.integers(0, 2),
    st.lists(_text, max_size=3),
)


@st.composite
def records(draw: st.DrawFn) -> dict[str, Any]:
    """A record as `json.loads` has it."""
    task = [draw(_text), draw(_text), *draw(_more)[: draw(st.integers(0, 4))]]
    result = [
        draw(st.lists(_seconds, max_size=4)),
        draw(st.integers(0, 8)),
        draw(_seconds),
        draw(st.integers(0, 2**40)),
    ]
    version = draw(st.sampled_from(["v0.2", "v0.3", "v0.4", "v0.5", "v0.6"]))
    return {"i": [task, [[], draw(st.lists(STEPS, max_size=5))]], "r": result, "v": version}


@st.composite
def good_lines(draw: st.DrawFn) -> bytes:
    """A record with the spaces of TVM, none, or others."""
    comma, colon = draw(st.sampled_from([(", ", ": "), (",", ":"), (" ,", " : ")]))
    text = json.dumps(draw(records()), separators=(comma, colon), ensure_ascii=draw(st.booleans()))
    return text.encode()


@st.composite
def spoilt_lines(draw: st.DrawFn) -> bytes:
    """A line with something in it replaced, mostly no record any more."""
    line = draw(good_lines() | st.sampled_from([text.encode() for text in TVM_LINES]))
    start = draw(st.integers(0, len(line)))
    end = min(len(line), start + draw(st.integers(0, 6)))
    instead = draw(
        st.binary(max_size=3)
        | st.sampled_from([
            b"", b"]", b"[", b'"', b", ", b"], [", b'], ["', b'], [[], [["', b']]]], "r": [[',
            b"\0", b"\xff", b"NaN", b"Infinity", b"1e999", b"-1", b"1.5", b"01", b"9" * 25,
            b"true", b"null", b'"v": "v0.6", ', b"\\ud800", b'["CP", 1], ', b"#", b" ", b"{", b"\r",
        ])
    )  # fmt: skip
    return (line[:start] + instead + line[end:]).replace(b"\n", b"")


LINES = good_lines() | spoilt_lines() | st.sampled_from([b"", b"# a comment", b" ", b"\r"])
