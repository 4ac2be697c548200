"""What stays in ONNX Runtime makes few parts, and none that cannot run."""

from tunefleet.compiler.frontends.onnx_cut import GraphPart, Wiring, cut


def _chain(length, cheap=()):
    return [Wiring((f"v{i}",), (f"v{i + 1}",), i in cheap) for i in range(length)]


def test_a_chain_is_cut_where_the_sides_change():
    assert cut(_chain(4), {2}, ()) == [
        GraphPart(False, (0, 1)),
        GraphPart(True, (2,)),
        GraphPart(False, (3,)),
    ]


def test_nodes_side_by_side_are_one_part():
    nodes = [Wiring(("x",), ("a",)), Wiring(("x",), ("b",)), Wiring(("a", "b"), ("y",))]
    assert cut(nodes, {0, 1}, ()) == [GraphPart(True, (0, 1)), GraphPart(False, (2,))]


def test_a_first_node_waits_for_a_later_one():
    nodes = [
        Wiring(("x",), ("a",)),
        Wiring(("z",), ("b",)),
        Wiring(("b",), ("c",)),
        Wiring(("a", "c"), ("y",)),
    ]
    assert cut(nodes, {0, 2}, ()) == [
        GraphPart(False, (1,)),
        GraphPart(True, (0, 2)),
        GraphPart(False, (3,)),
    ]


def test_cheap_nodes_between_outside_nodes_stay_outside():
    assert cut(_chain(3, cheap={1}), {0, 2}, ()) == [GraphPart(True, (0, 1, 2))]


def test_nodes_that_cost_something_are_worth_a_crossing():
    assert len(cut(_chain(3), {0, 2}, ())) == 3


def test_what_cannot_cross_is_made_and_read_in_one_part():
    nodes = [
        Wiring(("x",), ("sequence",)),
        Wiring(("x",), ("a",)),
        Wiring(("a",), ("b",)),
        Wiring(("sequence", "b"), ("y",)),
    ]
    assert cut(nodes, {0}, {"sequence"}) == [GraphPart(False, (1, 2)), GraphPart(True, (0, 3))]


def test_what_lies_between_the_ends_of_a_sequence_goes_with_it():
    nodes = [
        Wiring(("x",), ("sequence", "a")),
        Wiring(("a",), ("b",)),
        Wiring(("sequence", "b"), ("y",)),
    ]
    assert cut(nodes, {0}, {"sequence"}) == [GraphPart(True, (0, 1, 2))]
