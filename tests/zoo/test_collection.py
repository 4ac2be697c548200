"""The configurations from which records are collected."""

from itertools import pairwise

from tunefleet.zoo import CONFIGURATIONS, HELD_OUT, names, parse


def test_there_are_enough_and_each_comes_once():
    assert len(CONFIGURATIONS) >= 84
    assert len(set(map(parse, CONFIGURATIONS))) == len(CONFIGURATIONS)


def test_they_are_canonical():
    assert [str(parse(spec)) for spec in CONFIGURATIONS] == list(CONFIGURATIONS)


def test_the_first_hold_every_network_once():
    used = [parse(spec).name for spec in CONFIGURATIONS]
    first = len(set(used))
    assert len(set(used[:first])) == first
    # The others are small stand-ins for tests and first steps.
    assert set(names()) - set(used) == {"bert_2l", "tiny_cnn"}


def test_neighbours_are_of_different_families():
    families = [parse(spec).name.rstrip("0123456789_").split("_")[0] for spec in CONFIGURATIONS]
    assert all(a != b for a, b in pairwise(families))


def test_batch_sizes():
    assert {parse(spec)["batch"] for spec in CONFIGURATIONS} == {1, 2, 4, 8}


def test_held_out_configurations_are_of_the_collection_and_early_in_it():
    assert set(HELD_OUT) <= set(CONFIGURATIONS[:10])
