from __future__ import annotations

import json
from typing import Any

import pytest

from .conftest import Log, read_all


def entry(x: float, time: Any = 2.0, **more: Any) -> dict[str, Any]:
    measured = {} if isinstance(time, str) else {"times": [2.0, 4.0], "GFLOP/s": 3.0}
    return {"x": x, "y": 1, "time": time, **measured, "compile_time": 900.0, "benchmark_time": 100,
            "timestamp": "2023-12-22 09:54:05.500000+00:00", **more}  # fmt: skip


def cache(*entries: Any) -> str:
    """As Kernel Tuner writes it: a line for each configuration."""
    header = {"device_name": "A100", "kernel_name": "convolution", "problem_size": [64, 64],
              "tune_params_keys": ["x", "y"], "tune_params": {"x": [1, 2], "y": [1]},
              "objective": "time"}  # fmt: skip
    lines = ",\n".join(f'"{i},1": {json.dumps(value)}' for i, value in enumerate(entries))
    return json.dumps(header, indent=0)[:-2] + ',\n"cache": {\n' + lines + "}\n}"


def t4(*invalidities: str) -> str:
    results = [
        {
            "timestamp": "2023-12-22 09:54:05.5+00:00",
            "configuration": {"x": i, "y": 1},
            "times": {"compilation": 9.0, **({"runtimes": [2, 4]} if word == "correct" else {})},
            "invalidity": word,
            "correctness": 1,
        }
        for i, word in enumerate(invalidities)
    ]
    value = {"metadata": {"timeunit": "miliseconds"}, "results": results, "schema_version": "1.0.0"}
    return json.dumps(value, indent=2)


def test_a_configuration_of_a_cache_is_a_row(log: Log) -> None:
    (row,), bad = read_all(log(cache(entry(16))), device="a100")
    assert bad == []
    del row["source"]
    assert row == {
        "line": 23,
        "format": "kernel_tuner",
        "version": "cache",
        "device": "a100",
        "target": "",
        "workload": '["convolution",[64,64]]',
        "steps": ['["x",16]', '["y",1]'],
        "costs_s": [0.002, 0.004],
        "error_no": 0,
        "all_cost_s": 1.0,
        "timestamp": 1703238845.5,
        "extra": '{"device_name":"A100"}',
        "definition": None,
    }


def test_a_result_of_t4_is_a_row(log: Log) -> None:
    (row,), bad = read_all(log(t4("correct"), "a.json.gz"))
    assert bad == []
    assert (row["line"], row["version"], row["workload"]) == (6, "T4", '["x","y"]')
    assert (row["costs_s"], row["all_cost_s"], row["timestamp"]) == ([0.002, 0.004], None,
                                                                     1703238845.5)  # fmt: skip


def test_words_for_failures_become_numbers(log: Log) -> None:
    failed = ["InvalidConfig", "CompilationFailedConfig", "RuntimeFailedConfig", "Other"]
    rows, _ = read_all(log(cache(*(entry(1, word) for word in failed))))
    assert [(row["error_no"], row["costs_s"]) for row in rows] == [(n, []) for n in (1, 2, 4, 8)]
    words = ["correct", "constraints", "compile", "runtime", "correctness", "timeout", "other"]
    rows, _ = read_all(log(t4(*words)))
    assert [row["error_no"] for row in rows] == [0, 1, 2, 4, 5, 7, 8]


def test_a_number_that_stands_for_a_failure_is_one(log: Log) -> None:
    (row,), _ = read_all(log(cache(entry(1, 1e20))))
    assert (row["error_no"], row["costs_s"]) == (8, [])


def test_a_metric_that_is_no_number_makes_no_difference(log: Log) -> None:
    rows, bad = read_all(log(cache(entry(1, power=float("nan")), entry(2))))
    assert (len(rows), bad) == (2, [])


def test_a_cache_that_was_never_closed_is_read(log: Log) -> None:
    rows, bad = read_all(log(cache(entry(1), entry(2)).removesuffix("}\n}") + ",\n"))
    assert (len(rows), bad) == (2, [])


@pytest.mark.parametrize(
    "end", ['"3,1": {"x": 3, "y"', '"3,', '"3,1"', '"3,1": ', '"3,1": "\u00e9']
)
@pytest.mark.parametrize("name", ["a.json", "a.json.gz"])
def test_a_cache_cut_within_a_configuration_is_read_so_far(log: Log, end: str, name: str) -> None:
    whole = cache(entry(1), entry(2), entry(3, "timeout")).removesuffix("}\n}") + ",\n"
    text = (whole + end).encode()
    rows, bad = read_all(log(text[:-1] if end.endswith("\u00e9") else text, name))
    assert [row["line"] for row in rows] == [23, 24, 25]
    assert [number for number, _ in bad] == [26]


def test_results_cut_within_one_are_read_so_far(log: Log) -> None:
    text = t4("correct", "timeout", "correct")
    rows, bad = read_all(log(text[: text.rindex("invalidity")]))
    assert [row["error_no"] for row in rows] == [0, 7]
    assert len(bad) == 1


def test_more_than_is_held_at_once_is_read(log: Log) -> None:
    count = 3000
    rows, bad = read_all(log(cache(*(entry(i, note="x" * 1000) for i in range(count)))))
    assert ([row["line"] for row in rows], bad) == (list(range(23, 23 + count)), [])


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"x": 1}, "required field `time`"),
        (entry(1) | {"time": None}, "got `null`"),
        ({"x": 1, "time": 2.0}, "the parameter y is missing"),
        (entry(1, timestamp="yesterday"), "yesterday"),
        (entry(1, float("nan")), "out of range"),
        (entry(float("inf")), "out of range"),
        (5, "not a configuration"),
    ],
)
def test_a_bad_configuration_is_reported_and_the_others_are_read(
    log: Log, value: Any, reason: str
) -> None:
    rows, bad = read_all(log(cache(entry(1), value, entry(2))))
    assert [row["line"] for row in rows] == [23, 25]
    assert [number for number, _ in bad] == [24]
    assert reason in bad[0][1]


@pytest.mark.parametrize(
    "spoilt", ['{"time": 01}', '{"time": 1, "time": 2}', '{"time', "\0", '{"a": "\udcff"}']
)
def test_what_follows_broken_json_is_not_read(log: Log, spoilt: str) -> None:
    whole = cache(entry(1), "spoilt", entry(2)).replace('"spoilt"', spoilt)
    rows, bad = read_all(log(whole.encode(errors="surrogateescape")), format="kernel_tuner")
    assert len(rows) <= 1
    assert len(bad) == 1


def test_times_in_an_unknown_unit_are_bad(log: Log) -> None:
    rows, bad = read_all(log(t4("correct").replace("miliseconds", "fortnights")))
    assert (rows, bad) == ([], [(6, "not a configuration: times in 'fortnights'")])


@pytest.mark.parametrize(
    "text",
    ["{}", '{"metadata": 5, "results": []}', '{"tune_params_keys": 5, "cache": {}}', "[", "x"],
)
def test_what_is_no_cache_is_reported(log: Log, text: str) -> None:
    rows, bad = read_all(log(text), format="kernel_tuner")
    assert (rows, [line for line, _ in bad]) == ([], [1])
