from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tunefleet.errors import InputError
from tunefleet.hardware import Hardware, HardwareTable, Kind, shipped_table
from tunefleet.hardware.table import parse

ROW = """
[[device]]
key = "mine"
name = "My Accelerator"
aliases = ["v100"]
kind = "gpu"
vendor = "me"
architecture = "first"
units = 4
boost_ghz = 2.0
fma_per_clock = { fp32 = 128 }
source = "I made it"
"""
HEAD = 'schema = "tunefleet-devices/1"\n'


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("v100", "v100"),
        ("Tesla V100", "v100"),
        ("NVIDIA GeForce RTX 2080 Ti", "rtx2080ti"),
        ("2080ti", "rtx2080ti"),
        ("raspberry pi 4", "cortex-a72"),
        ("Intel Xeon Platinum 8358", "platinum-8358"),
        ("e5-2673", "e5-2673-v4"),
        ("A64FX", "a64fx"),
    ],
)
def test_a_device_goes_by_many_names(name: str, key: str) -> None:
    assert key == shipped_table().find(name).key


@pytest.mark.parametrize(
    "name",
    ["v100", "k80", "a100", "rtx2080ti", "platinum-8358", "cortex-a72", "gtx1650", "t4", "3700x",
     "i7-3770", "e5-2670", "a4000", "mi250x", "w6600", "m1", "m2", "1080ti", "rk3399", "tx2",
     "jetson-nano", "bcm2837", "snapdragon835", "kirin970", "pynq", "ultra96", "h100", "h200",
     "graviton2", "epyc-7452", "platinum-8272", "i7-8086k", "mi50", "mi100"],
)  # fmt: skip
def test_the_devices_of_the_field_are_there(name: str) -> None:
    assert shipped_table().find(name).source


@pytest.mark.parametrize(
    ("name", "type_name", "gflops"),
    [
        # As the vendors state them.
        ("v100", "fp32", 15_700),
        ("a100", "fp16", 78_000),
        ("rtx2080ti", "fp32", 13_450),
        ("mi100", "fp64", 11_500),
        ("h100", "fp32", 67_000),
        ("m1", "fp32", 2_600),
        # 32 cores x 2.6 GHz x 16 lanes x 2 units x 2.
        ("platinum-8358", "fp32", 5_325),
        # 4 cores x 1.5 GHz x 4 lanes x 1 unit x 2.
        ("cortex-a72", "fp32", 48),
    ],
)
def test_peaks_are_those_of_data_sheets(name: str, type_name: str, gflops: float) -> None:
    found = shipped_table().find(name).peaks_gflops[type_name]
    assert gflops == pytest.approx(found, rel=0.01)


def test_tensor_units_are_apart() -> None:
    a100 = shipped_table().find("a100")
    assert pytest.approx(a100.tensor_peaks_gflops["fp16"], rel=0.01) == 312_000
    assert "fp64" in a100.computed_types


def test_what_is_not_known_is_none() -> None:
    mali = shipped_table().find("mali-g72")
    assert mali.bandwidth_gb_s is None
    assert mali.peaks_gflops == {}
    assert mali.numbers()["peak_fp32_gflops"] is None


def test_every_row_has_the_same_numbers() -> None:
    names = {tuple(row.numbers()) for row in shipped_table()}
    assert len(names) == 1


def test_an_unknown_device_tells_names_like_it() -> None:
    with pytest.raises(InputError, match="did you mean titanx-maxwell, titanx-pascal"):
        shipped_table().find("titanx")


def test_a_file_of_the_user_goes_before(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(HEAD + ROW)
    table = shipped_table().with_file(tmp_path / "mine.toml")
    assert table.find("my accelerator").peaks_gflops["fp32"] / 2 == 1024.0
    assert table.find("V100").key == "mine"
    assert table.find("k80").key == "k80"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("]", "not TOML"),
        ("", "not a device table"),
        ('schema = "other/1"', "not a device table"),
        (HEAD + ROW.replace("units = 4", "units = 0"), "units is 0"),
        (HEAD + ROW.replace("units = 4", "units = true"), "units is True"),
        (HEAD + ROW.replace("units = 4", 'units = "4"'), "units is '4'"),
        (HEAD + ROW.replace("units = 4", "cores = 4"), "cores is not a feature"),
        (HEAD + ROW.replace("units = 4\n", ""), "mine.*units"),
        (HEAD + ROW.replace("fp32", "fp31"), "fp31"),
        (HEAD + ROW.replace('"gpu"', '"tpu"'), "tpu"),
        (HEAD + ROW.replace("boost_ghz = 2.0", "boost_ghz = nan"), "boost_ghz"),
        (HEAD + ROW.replace('"I made it"', '""'), "source is empty"),
        (HEAD + ROW + "threads = 2", "2 threads on 4 units"),
        (HEAD + ROW + ROW, "share the name"),
        (HEAD + "device = 3", "not a device table"),
        (HEAD + "device = [3]", "not a table"),
    ],
)
def test_a_bad_table_is_refused_with_its_reason(text: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        parse(text, "mine.toml")


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read"):
        shipped_table().with_file(tmp_path / "none.toml")


@given(st.sampled_from([row.key for row in shipped_table()]), st.sampled_from(" -_/"))
def test_case_and_signs_do_not_matter(key: str, sign: str) -> None:
    spelt = key.upper().replace("-", sign)
    assert key == shipped_table().find(f" {spelt} ").key


@given(st.text(max_size=12))
def test_an_unknown_name_is_an_input_error(name: str) -> None:
    assume(shipped_table().get(name) is None)
    with pytest.raises(InputError, match="device"):
        shipped_table().find(name)


def test_rows_hash_and_compare() -> None:
    row = Hardware("a", "A", Kind.CPU, "v", "x", "s", 1)
    assert len({row, Hardware("a", "A", Kind.CPU, "v", "x", "s", 1)}) == 1
    assert [row] == list(HardwareTable([row]))


def test_a_device_without_an_end_is_no_table() -> None:
    with pytest.raises(InputError, match="has more than 16,384 KiB, which such a file cannot have"):
        shipped_table().with_file(Path("/dev/zero"))
