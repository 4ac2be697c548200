from __future__ import annotations

import pytest

from .conftest import Log, read_all

#: As in TopHub, shortened.
NEW = (
    '{"input": ["llvm -mcpu=skylake-avx512", "conv2d_NCHWc.x86", [["TENSOR", [1, 3, 224, 224], '
    '"float32"], [2, 2], "NCHW"], {}], "config": {"index": 193, "code_hash": null, "entity": '
    '[["tile_ic", "sp", [1, 3]], ["unroll_kw", "ot", false]]}, '
    '"result": [[9.6e-05, 9.7e-05], 0, 1.75, 1539972731.35], "version": 0.2, "tvm_version": "0.7"}'
)
OLD = (
    '{"i": ["cuda -model=titanx", "topi_nn_conv2d", [["TENSOR", [1, 8], "float32"], "NCHW"], {}, '
    '["conv2d", [1, 8, "float32"], "NCHW"], {"i": 8797896, "c": null, "e": [["tile_f", "sp", '
    '[6, 1, 32, 1]], ["reorder_0", "re", [0, 1]], ["ann", "an", ["none", "unroll"]]], '
    '"t": "direct"}], "r": [[5.6e-05], 0, 14.1, 1535423916.7], "v": 0.1}'
)


def test_a_record_of_v0_2_is_a_row(log: Log) -> None:
    (row,), bad = read_all(log(f"# pre-tuned\n{NEW}\n"), device="xeon")
    assert bad == []
    del row["source"]
    assert row == {
        "line": 2,
        "format": "autotvm",
        "version": "0.2",
        "device": "xeon",
        "target": "llvm -mcpu=skylake-avx512",
        "workload": '["conv2d_NCHWc.x86",["TENSOR",[1,3,224,224],"float32"],[2,2],"NCHW"]',
        "steps": ['["tile_ic","sp",[1,3]]', '["unroll_kw","ot",false]'],
        "costs_s": [9.6e-05, 9.7e-05],
        "error_no": 0,
        "all_cost_s": 1.75,
        "timestamp": 1539972731.35,
        "extra": '{"kwargs":{},"index":193,"code_hash":null,"tvm_version":"0.7"}',
        "definition": None,
    }


def test_a_record_of_v0_1_is_a_row(log: Log) -> None:
    (row,), bad = read_all(log(OLD))
    assert bad == []
    assert (row["version"], row["target"]) == ("0.1", "cuda -model=titanx")
    assert row["workload"] == '["topi_nn_conv2d",["TENSOR",[1,8],"float32"],"NCHW"]'
    assert row["steps"][1:] == ['["reorder_0","re",[0,1]]', '["ann","an",["none","unroll"]]']
    assert '"workload":["conv2d",[1,8,"float32"],"NCHW"],"index":8797896' in row["extra"]


def test_both_versions_may_be_in_one_log(log: Log) -> None:
    rows, bad = read_all(log(f"{OLD}\n{NEW}"))
    assert ([row["version"] for row in rows], bad) == (["0.1", "0.2"], [])


def test_names_that_are_keys_elsewhere_are_names(log: Log) -> None:
    names = ("v", "i", "input", "index")
    lines = [line.replace("NCHW", name) for name in names for line in (OLD, NEW)]
    rows, bad = read_all(log("\n".join(lines)))
    assert ([row["version"] for row in rows], bad) == (["0.1", "0.2"] * len(names), [])


@pytest.mark.parametrize(
    ("spoilt", "reason"),
    [
        (NEW[:100], "not JSON"),
        (NEW.replace('"sp"', '"xx"'), "'xx'"),
        (NEW.replace("[1, 3]]", "[1, 3], 4]"), "not a record"),
        (NEW.replace("0.2,", "0.3,"), "version 0.3 is not known"),
        (OLD.replace('"v": 0.1', '"v": 7'), "version 7.0 is not known"),
        (NEW.replace('"code_hash"', '"index"'), "'index' is there twice"),
        (NEW.replace("{}", '{"a": 1, "a": 2}'), "'a' is there twice"),
        (NEW.replace('"code_hash"', '"\\u0069ndex"'), "'index' is there twice"),
        (NEW.replace("1.75", "NaN"), "not JSON: NaN"),
        (NEW.replace("1.75", "1e999"), "out of range"),
        (NEW.replace("1.75", "null"), "Expected `float`"),
        (NEW.replace("193", "9" * 40), "Expected `int`"),
        (NEW.replace('"result"', '"results"'), "results"),
        (NEW.replace("skylake", "\\ud800"), "surrogate"),
        (NEW.replace("skylake", "\0"), "a NUL byte"),
        (NEW.encode().replace(b"skylake", b"\xff"), "not UTF-8"),
        ("Time partial tuning: 6.7", "not JSON"),
        ("\0" * 9, "a NUL byte"),
    ],
)
def test_a_bad_line_is_reported_and_the_others_are_read(
    log: Log, spoilt: str | bytes, reason: str
) -> None:
    line = spoilt.encode() if isinstance(spoilt, str) else spoilt
    rows, bad = read_all(log(b"\n".join([NEW.encode(), line, OLD.encode()])))
    assert [row["line"] for row in rows] == [1, 3]
    assert [number for number, _ in bad] == [2]
    assert reason in bad[0][1]
