from __future__ import annotations

from typing import get_args

import pytest

from tunefleet.dataset import steps
from tunefleet.errors import InputError

ONE_OF_EACH = [
    '["AN",5,0,5]',
    '["FU",5,[0,1,2,3]]',
    '["PR",3,0,"auto_unroll_max_step$1024"]',
    '["RE",2,[0,4,1,5]]',
    '["SP",3,0,512,[1,64,2,1],1]',
    '["FSP",6,0,1,3]',
    '["FFSP",4,0,[0,1],1,1]',
    '["SA",1,0,32,16]',
    '["CA",2,4,3]',
    '["CI",5]',
    '["CR",1]',
    '["CHR",1,"shared",[3]]',
    '["CHW",3,"local"]',
    '["RF",2,1,0]',
]


@pytest.mark.parametrize("text", ONE_OF_EACH)
def test_every_kind_is_parsed_and_written_back(text: str) -> None:
    assert text == steps.normal(text)


def test_there_are_fourteen_kinds() -> None:
    kinds = [type(steps.parse(text)) for text in ONE_OF_EACH]
    assert set(kinds) == set(get_args(steps.Step))
    assert len(kinds) == 14


def test_arguments_have_names() -> None:
    step = steps.parse('["SP", 3, 0, 512, [1, 64, 2, 1], 1]')
    assert steps.Split(3, 0, 512, (1, 64, 2, 1), 1) == step
    assert hash(step) == hash(steps.parse('["SP",3,0,512,[1,64,2,1],1]'))


def test_a_step_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        steps.parse('["CI",5]').stage = 6  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ('["CP",1]', "Invalid value 'CP'"),
        ('["TS",1]', "Invalid value 'TS'"),
        ("[]", "at least length 1"),
        ('["CI"]', "at least length 2"),
        ('["CI",1,2]', "at most length"),
        ('["CI",-1]', ">= 0"),
        ('["CI",1.0]', "got `float`"),
        ('["CI",true]', "got `bool`"),
        ('["CI",null]', "got `null`"),
        ('["CI",65536]', "<= 65535"),
        ('["SP",1,0,9223372036854775808,[],1]', "<= 9223372036854775807"),
        ('["SP",1,0,4,[4],2]', "<= 1"),
        ('["SP",1,0,4,4,1]', "Expected `array`"),
        ('["AN",1,0,12]', "<= 11"),
        ('["CHW",1,2]', "Expected `str`"),
        ('["PR",1,0,"\\ud800"]', ""),
        ('["CI",1', "truncated"),
        ('["CI",1]]', "trailing"),
        ("5", "Expected `array`"),
    ],
)
def test_what_is_no_step_is_refused_with_the_reason(text: str, cause: str) -> None:
    with pytest.raises(InputError, match=r"^step ") as raised:
        steps.parse(text)
    assert cause in str(raised.value)
