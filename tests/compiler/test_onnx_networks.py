"""ONNX files of every kind arrive, and compute what ONNX Runtime does."""

import numpy as np
import onnx
import pytest
from onnx import parser

from tunefleet.compiler.frontends import ImportRequest, load_network
from tunefleet.compiler.frontends.onnx_operators import OPERATORS
from tunefleet.core.shapes import ShapeRequest
from tunefleet.errors import InputError, InternalError

pytestmark = [pytest.mark.tvm, pytest.mark.filterwarnings("ignore")]

_HEAD = '<ir_version: 9, opset_import: ["":18, "com.microsoft":1, "mine":1]>\n'
_TRUE = "bool {1}"

# A graph, how many nodes of it stay in ONNX Runtime in how many segments.
GRAPHS = {
    "values make a shape": (
        """g (float[4,4] x) => (int64[2,N] y, float[M] z)
        { r = Relu(x) y = NonZero(r) t = Transpose(y) k = GatherND(r, t) z = Exp(k) }""",
        [4],
    ),
    "everything stays": ("g (float[4,4] x) => (int64[2,N] y) { y = NonZero(x) }", [1]),
    "a branch by an input": (
        """g (float[2,3] x, bool c) => (float[2,3] y) { a = Relu(x) b = Exp(x)
        d = If (c) <then_branch = t () => (o) { o = Add(a, b) },
                    else_branch = e () => (p) { p = Neg(a) }> y = Add(d, x) }""",
        [1],
    ),
    "a branch that is known": (
        """g (float[N,3] x) => (float[N,3] y)
        { s = Shape(x) i = Constant<value_ints = [1]>() n = Gather(s, i)
        k = Constant<value_ints = [3]>() c = Equal(n, k)
        y = If (c) <then_branch = t () => (o) { o = Exp(x) },
                    else_branch = e () => (p) { p = Neg(x) }> }""",
        [],
    ),
    "a branch within a branch": (
        """g (float[N,3] x) => (float[N,3] y)
        { s = Size(x) k = Constant<value_int = 3>() c = Equal(s, k)
        y = If (c) <then_branch = t () => (o) { a = Exp(x) m = Constant<value_int = 2>()
            d = Less(m, k) r = If (d) <then_branch = u () => (v) { v = Sin(a) },
                                       else_branch = w () => (z) { z = Cos(a) }>
            o = Add(r, a) },
                    else_branch = e () => (p) { p = Neg(x) }> }""",
        [],
    ),
    "a scan from both ends": (
        """g (float[2,5] x) => (float[2] z, float[5,2] y)
        { a = Constant<value_floats = [0.5, 2.0]>() k = Constant<value_int = 0>()
        z, y = Scan <num_scan_inputs = 1, scan_input_axes = [1], scan_input_directions = [1],
                     scan_output_axes = [0], scan_output_directions = [1],
            body = b (float[2] v, float[2] e) => (vo, sc)
            { f = Mul(v, e) vo = Tanh(f) sc = Add(vo, e) }> (a, x) }""",
        [],
    ),
    # Convolutions change layouts, which TVM infers for no stack.
    "maps of convolutions that are stacked": (
        """g (float[1,3,6,6] x) => (float[1,4,6,6] y)
        { k = Constant<value_ints = [4,3,3,3]>() n = Constant<value_float = 0.2>()
        w = Expand(n, k) a = Conv<pads = [1,1,1,1]>(x, w) b = Relu(a) y = Mean(a, b) }""",
        [],
    ),
    "spectra that are one-sided by default": (
        """g (float[1,64] x) => (float[1,7,9] y)
        { step = Constant<value_int = 8>() w = Constant<value_int = 16>()
        a = Constant<value_ints = [-1]>() t = Constant<value_ints = [2]>() r = Unsqueeze(x, t)
        s = STFT(r, step, "", w) y = ReduceL2 <keepdims = 0> (s, a) }""",
        [],
    ),
    "a loop that is known": (
        """g (float[2,3] x) => (float[2,3] y, float[4,2,3] z)
        { n = Constant<value_int = 4>() t = Constant<value_int = 1>() c = Cast<to = 9>(t)
        y, z = Loop (n, c, x) <body = b (int64 i, bool ci, float[2,3] v) => (co, vo, sc)
        { co = Identity(ci) f = Cast<to = 1>(i) vo = Add(v, f) sc = Mul(vo, x) }> }""",
        [],
    ),
    "a loop that a counter ends": (
        """g (float[2,3] x) => (float[2,3] y, float[3,2,3] z)
        { z0 = Constant<value_int = 0>() k = Constant<value_int = 3>() c = Less(z0, k)
        last, y, z = Loop ("", c, z0, x) <body = b (int64 i, bool ci, int64 n, float[2,3] v)
            => (co, no, vo, sc)
        { o = Constant<value_int = 1>() no = Add(n, o) co = Less(no, k) f = Cast<to = 1>(no)
        vo = Mul(v, f) sc = Tanh(vo) }> }""",
        [],
    ),
    "a loop whose rounds are vectors": (
        """g (float[4,3] x) => (float[2,1,3] y)
        { n = Constant<value_int = 2>() y = Loop (n, "") <body = b (int64[1] i, bool ci)
            => (co, sc)
        { co = Identity(ci) o = Constant<value_ints = [1]>() e = Add(i, o)
        sc = Slice(x, i, e) }> }""",
        [],
    ),
    "a loop of whose outputs one is read": (
        """g (float[2,3] x) => (float[2,3] y)
        { a = Relu(x) n = Constant<value_int = 3>() k = Constant<value_float = 5.0>()
        y, z = Loop (n, "", a) <body = b (int64 i, bool ci, float[2,3] v) => (co, vo, sc)
        { vo = Add(v, x) m = ReduceMax<keepdims = 0>(vo) co = Less(m, k) sc = Exp(vo) }> }""",
        [1],
    ),
    "a loop that a value ends": (
        """g (float[2,3] x) => (float[2,3] y)
        { a = Relu(x) n = Constant<value_int = 3>() k = Constant<value_float = 5.0>()
        y = Loop (n, "", a) <body = b (int64 i, bool ci, float[2,3] v) => (co, vo)
        { vo = Add(v, x) m = ReduceMax<keepdims = 0>(vo) co = Less(m, k) }> }""",
        [1],
    ),
    "a sequence": (
        """g (float[6,3] x) => (float[3,3] y) { k = Constant<value_int = 3>() a = Relu(x)
        s = SplitToSequence<axis = 0>(a, k) o = Constant<value_int = 1>() e = SequenceAt(s, o)
        b = Exp(e) q = SequenceInsert(s, b) f = Constant<value_int = 2>() y = SequenceAt(q, f) }""",
        [],
    ),
    "a sequence that an input chooses from": (
        """g (float[6,3] x, int64 i) => (float[3,3] y) { k = Constant<value_int = 3>() a = Relu(x)
        s = SplitToSequence<axis = 0>(a, k) z = Constant<value_int = 0>() o = Mul(i, z)
        e = SequenceAt(s, o) y = Exp(e) }""",
        [2],
    ),
    "a list without its first, joined, and its length": (
        """g (float[2,4] x) => (float[2,3] y, float[3,2] z, int64 n)
        { s = SplitToSequence<axis = 1, keepdims = 0>(x) f = Constant<value_int = -4>()
        r = SequenceErase(s, f) n = SequenceLength(r)
        y = ConcatFromSequence<axis = 1, new_axis = 1>(r) u = SplitToSequence<axis = 1>(x)
        v = SequenceErase(u) w = ConcatFromSequence<axis = 1>(v) z = Transpose(w) }""",
        [],
    ),
    "a list that a loop fills": (
        """g (float[2,3] x) => (float[4,2,3] y)
        { n = Constant<value_int = 4>() e = SequenceEmpty()
        h, s = Loop (n, "", x, e) <body = b (int64 i, bool ci, float[2,3] v, seq(float[2,3]) q)
            => (co, vo, qo) { co = Identity(ci) vo = Tanh(v) qo = SequenceInsert(q, vo) }>
        y = ConcatFromSequence<axis = 0, new_axis = 1>(s) }""",
        [],
    ),
    "text in between": (
        """g (float[2,2] x) => (float[2,2] y)
        { r = Relu(x) s = Cast<to = 8>(r) b = Cast<to = 1>(s) y = Exp(b) }""",
        [2],
    ),
    "an operator that TVM lacks": (
        "g (float[1,4,4] x) => (float[1] y) { r = Relu(x) d = Det(r) y = Neg(d) }",
        [1],
    ),
    "sorting": (
        """g (float[1,16] x) => (float[1,4] y, int64[1,4] i)
        { k = Constant<value_ints = [4]>() r = Relu(x) a, i = TopK(r, k) y = Exp(a) }""",
        [],
    ),
    "boxes": (
        """g (float[1,20,4] b, float[1,2,20] c) => (int64[K,3] i)
        { n = Constant<value_ints = [5]>() t = Constant<value_floats = [0.5]>() a = Abs(b)
        s = Sigmoid(c) i = NonMaxSuppression(a, s, n, t, t) }""",
        [1],
    ),
    "an output without elements": (
        """g (float[4,3] x) => (float[0,3] y, float[4,3] z)
        { a = Constant<value_ints = [2]>() t = Constant<value_ints = [0]>()
        y = Slice(x, a, a, t) z = Relu(x) }""",
        [1],
    ),
    "a constant and an input as outputs": (
        "g (float[2,2] x) => (float[2,2] y, int64[2] s) { y = Identity(x) s = Shape(x) }",
        [],
    ),
    "an input that is an output too": (
        "g (float[2,2] x) => (float[2,2] y, float[N,M] x) { z = MatMul(x, x) y = Relu(z) }",
        [],
    ),
    "half precision": (
        """g (float16[2,4] x) => (float16[2,2] y) <float16[4,2] w = {1,2,3,4,5,6,7,8}>
        { m = MatMul(x, w) y = Relu(m) }""",
        [],
    ),
    "parts without elements beside others": (
        """g (float[1,4,1] x) => (float[1,4,1] y, float[1,4,2] z) <int64[3] none = {1,4,0}>
        { r = Relu(x) n = ConstantOfShape(none) y = Concat <axis = 2> (r, n)
        z = Concat <axis = 2> (r, n, x) }""",
        [],
    ),
    "an axis from the end": (
        """g (float[1,4,1] x) => (float[1,4] y)
        { a = Constant<value_ints = [-1]>() y = Squeeze(x, a) }""",
        [],
    ),
    "a local function": (
        """g (float[2,3] x) => (float[2,3] y) { y = mine.f(x) }
        <domain: "mine", opset_import: ["":18]> f (a) => (b) { t = Exp(a) b = Add(t, a) }""",
        [],
    ),
}


def _save(folder, graph, head=_HEAD):
    path = folder / "network.onnx"
    onnx.save(parser.parse_model(head + graph), path)
    return path


def _load(path, folder, whole=False, **shapes):
    return load_network(path, ImportRequest(folder, ShapeRequest.of(**shapes), whole))


def _check(network, folder):
    """The prepared and compiled module computes what ONNX Runtime does."""
    from tunefleet.artifacts.network import LoadedNetwork
    from tunefleet.compiler.code.executable import compile_network, save_network, worst_difference
    from tunefleet.compiler.graph.pipeline import prepare
    from tunefleet.compiler.toolchain.host import native_target, to_tvm

    target, path = native_target(1), folder / "module.so"
    save_network(compile_network(prepare(network.mod, to_tvm(target)), target, {}), path)
    actual = LoadedNetwork(str(path)).run(network.example_inputs)
    expected = network.reference(network.example_inputs)
    assert worst_difference(expected, actual) < 1e-4
    for spec, array in zip(network.info.outputs, expected, strict=True):
        assert spec.dtype == array.dtype.name
        assert all(e in (-1, n) for e, n in zip(spec.shape, array.shape, strict=True))


@pytest.mark.parametrize("case", GRAPHS)
def test_it_computes_what_onnx_runtime_does(case, tmp_path):
    graph, sizes = GRAPHS[case]
    network = _load(_save(tmp_path, graph), tmp_path)
    assert sizes == [len(segment.nodes) for segment in network.segments]
    assert all(s.reason and s.framework == "ONNX Runtime" for s in network.segments)
    _check(network, tmp_path)


_CHOOSES = """g (float[2,3] x, int64 rate, bool[1] flag) => (float[2,3] y)
{ k = Constant<value_int = 16000>() c = Equal(rate, k)
a = If (c) <then_branch = t () => (o) { o = Exp(x) }, else_branch = e () => (p) { p = Neg(x) }>
y = Where(flag, a, x) }"""


def test_a_constant_input_is_gone_with_what_hangs_on_it(tmp_path):
    path = _save(tmp_path, _CHOOSES)
    constants = [("rate", [16000]), ("flag", [1])]
    network = _load(path, tmp_path, constants=constants)
    assert [spec.name for spec in network.info.inputs] == ["x"]
    assert not network.segments
    _check(network, tmp_path)
    assert np.allclose(network.reference(network.example_inputs)[0], np.exp(network.example_inputs))
    other = _load(path, tmp_path, constants=[("rate", [8000]), ("flag", [1])])
    assert network.info.digest != other.info.digest


@pytest.mark.parametrize(
    ("name", "values", "text"),
    [
        ("speed", [1], "no input speed; its inputs: x, rate, flag"),
        ("rate", [0.5], "holds int64, not 0.5"),
        ("rate", [2**63], "holds int64, not 9223372036854775808"),
        ("rate", [10**30], "holds int64, not 10000"),
        ("rate", [1e30], "holds int64, not 1e"),
        ("x", [1e39], "holds float32, not 1e"),
        ("x", [1, 2], "shape 2,3, 2 values do not fit"),
    ],
)
def test_constants_that_do_not_fit_are_refused(name, values, text, tmp_path):
    with pytest.raises(InputError, match=text):
        _load(_save(tmp_path, _CHOOSES), tmp_path, constants=[(name, values)])


def test_maps_from_classes_to_values_become_arrays(tmp_path):
    graph = """g (float[3,2] x) => (seq(map(int64, float)) y)
    { r = Sigmoid(x) y = ai.onnx.ml.ZipMap <classlabels_int64s = [4, 7]> (r) }"""
    head = '<ir_version: 9, opset_import: ["":18, "ai.onnx.ml":3]>\n'
    network = _load(_save(tmp_path, graph, head), tmp_path)
    assert not network.segments
    assert network.notes == ("output y is an array with a column for each class",)
    _check(network, tmp_path)


def test_shape_arithmetic_is_gone_once_shapes_are_fixed(tmp_path):
    graph = """g (float[N,C,H,W] x) => (float[N,K] y)
    { s = Shape(x) two = Constant<value_ints = [2]>() z = Constant<value_ints = [0]>()
    b = Slice(s, z, two) m = Constant<value_ints = [-1]>() n = Concat<axis = 0>(b, m)
    r = Reshape(x, n) y = ReduceMean<keepdims = 0>(r, two) }"""
    path = _save(tmp_path, graph)
    network = _load(path, tmp_path, shapes=[("x", (1, 3, 4, 5))], whole=True)
    assert network.info.outputs[0].shape == (1, 3)
    _check(network, tmp_path)


def test_shapes_of_the_exporters_example_are_not_believed(tmp_path):
    graph = "g (float[N,3] x) => (float[9,3] y) { a = Relu(x) y = Exp(a) }"
    network = _load(_save(tmp_path, graph), tmp_path, dims=[("N", [2])])
    assert network.info.outputs[0].shape == (2, 3)
    _check(network, tmp_path)


def _without_types(path):
    """The same file, which no longer says what its outputs are."""
    model = onnx.load(path)
    for value in model.graph.output:
        value.ClearField("type")
    onnx.save(model, path)
    return path


@pytest.mark.parametrize(
    "nodes",
    ["a = Exp(x) y = MatMul(a, x)", "a = Exp(x) y = NonZero(a)", "y = com.microsoft.Gelu(x)"],
    ids=["compiled", "a segment", "known to ONNX Runtime alone"],
)
def test_the_type_of_an_output_that_the_file_does_not_tell_is_inferred(nodes, tmp_path):
    path = _save(tmp_path, f"g (float[3,3] x) => (float[3,3] y) {{ {nodes} }}")
    _check(_load(_without_types(path), tmp_path), tmp_path)


@pytest.mark.parametrize(
    ("nodes", "fault"),
    [
        ("y = SequenceConstruct(x, x)", "output y is not a tensor"),
        ("y = Cast<to = 8>(x)", "output y is text"),
        (
            """a = Cast<to = 8>(x) y = com.microsoft.Tokenizer<mark = 0, mincharnum = 1,
            pad_value = "", separators = ["."]>(a)""",
            "output y has no type, and none follows from the graph",
        ),
    ],
)
def test_an_output_without_a_type_that_is_no_tensor_of_numbers_is_refused(nodes, fault, tmp_path):
    path = _save(tmp_path, f"g (float[3] x) => (float[3] y) {{ {nodes} }}")
    with pytest.raises(InputError, match=fault):
        _load(_without_types(path), tmp_path)


def test_a_scalar_is_an_input(tmp_path):
    network = _load(_save(tmp_path, "g (float x) => (float y) { y = Exp(x) }"), tmp_path)
    assert network.info.inputs[0].shape == ()
    _check(network, tmp_path)


def test_an_input_without_a_rank_takes_the_shape_that_is_said(tmp_path):
    path = _save(tmp_path, "g (float[] x) => (float[] y) { y = Exp(x) }")
    with pytest.raises(InputError, match="--shape x="):
        _load(path, tmp_path)
    _check(_load(path, tmp_path, shapes=[("x", (2, 3))]), tmp_path)


def test_dimensions_of_one_name_are_one(tmp_path):
    graph = "g (float[N,L] x, float[N,L] m) => (float[N,L] y) { y = Mul(x, m) }"
    network = _load(_save(tmp_path, graph), tmp_path, dims=[("L", [7])])
    assert {(1, 7)} == {spec.shape for spec in network.info.inputs}


@pytest.mark.parametrize("extent", [0, -1])
def test_zero_and_minus_one_are_free(tmp_path, extent):
    path = _save(tmp_path, "g (float[2,4] x) => (float[2,4] y) { y = Relu(x) }")
    model = onnx.load(path)
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = extent
    onnx.save(model, path)
    _check(_load(path, tmp_path, shapes=[("x", (3, 4))]), tmp_path)


def test_the_size_of_images_that_a_file_notes_is_taken(tmp_path):
    path = _save(tmp_path, "g (float[1,3,H,W] x) => (float[1,3,H,W] y) { y = Relu(x) }")
    model = onnx.load(path)
    onnx.helper.set_model_props(model, {"imgsz": "[8, 16]"})
    onnx.save(model, path)
    network = _load(path, tmp_path)
    assert network.info.inputs[0].shape == (1, 3, 8, 16)
    assert any("as the network itself says" in note for note in network.notes)


def test_an_old_file_arrives(tmp_path):
    graph = """g (float[1,2,4,4] x) => (float[1,2,8,8] y) <float[4] s = {1,1,2,2}>
    { a = Unsqueeze<axes = [0]>(x) b = Squeeze<axes = [0]>(a) y = Upsample<mode = "nearest">(b, s) }
    """
    path = _save(tmp_path, graph, '<ir_version: 4, opset_import: ["":9]>\n')
    _check(_load(path, tmp_path, whole=True), tmp_path)


def test_weights_in_another_file_reach_module_and_segment(tmp_path):
    graph = """g (float[2,256] x) => (float[2,256] y)
    { m = MatMul(x, w) d = Reshape(m, s) e = Det(d) f = Add(e, w) y = Slice(f, a, b, a) }"""
    model = parser.parse_model(_HEAD + graph)
    weight = np.random.default_rng(0).standard_normal((256, 256)).astype("float32") / 16
    for name, value in (
        ("w", weight),
        ("s", np.array([2, 16, 16])),
        ("a", np.array([0])),
        ("b", np.array([2])),
    ):
        model.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    # The determinant of a batch of two matrices is added to rows of the weight.
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([2, 1]), "t"))
    model.graph.node[3].input[0] = "g"
    reshape = onnx.helper.make_node("ReduceSum", ["e"], ["g"], keepdims=0)
    model.graph.node.insert(3, reshape)
    path = tmp_path / "network.onnx"
    onnx.save(model, path, save_as_external_data=True, location="w.bin", size_threshold=1000)
    network = _load(path, tmp_path)
    assert len(network.segments) == 1
    _check(network, tmp_path)


def test_a_network_that_is_to_be_whole_says_what_would_stay(tmp_path):
    graph = "g (float[1,4,4] x) => (float[1] y) { r = Relu(x) d = Det(r) y = Neg(d) }"
    with pytest.raises(InputError) as caught:
        _load(_save(tmp_path, graph), tmp_path, whole=True)
    text = str(caught.value)
    for word in ("1 of 3 nodes", "Det", "float32[1, 4, 4]", "TVM has no conversion", "--whole"):
        assert word in text


def test_a_bug_of_ours_is_not_told_as_the_users(tmp_path, monkeypatch):
    from tunefleet.compiler.frontends import onnx_graph

    def broken(node):
        return node.no_such_attribute

    broken.__code__ = broken.__code__.replace(co_filename=onnx_graph.__file__)
    monkeypatch.setitem(OPERATORS, ("", "Exp"), broken)
    path = _save(tmp_path, "g (float[2] x) => (float[2] y) { y = Exp(x) }")
    with pytest.raises(InternalError, match="no_such_attribute"):
        _load(path, tmp_path)


def test_a_form_that_a_rule_refuses_stays(tmp_path, monkeypatch):

    def refuses(node):
        raise NotImplementedError("only of matrices")

    monkeypatch.setitem(OPERATORS, ("", "Exp"), refuses)
    path = _save(tmp_path, "g (float[2] x) => (float[2] y) { y = Exp(x) }")
    network = _load(path, tmp_path)
    assert network.segments[0].reason == "Exp: only of matrices"


def test_a_conversion_to_another_shape_is_not_trusted(tmp_path, monkeypatch):
    from tunefleet.compiler.frontends import onnx_graph

    def wrong(node):
        return onnx_graph.relax.op.expand_dims(node.inputs[0], 0)

    monkeypatch.setitem(OPERATORS, ("", "Exp"), wrong)
    path = _save(tmp_path, "g (float[2] x) => (float[2] y) { y = Exp(x) }")
    network = _load(path, tmp_path)
    assert "ONNX says float32[2]" in network.segments[0].reason
    _check(network, tmp_path)


@pytest.mark.parametrize("operator", ["Elu", "Softplus"])
def test_a_conversion_that_computes_something_else_is_found(tmp_path, monkeypatch, operator):
    from tvm.relax.frontend.onnx import onnx_frontend

    from tunefleet.compiler.frontends.onnx_graph import relax

    class Wrong(onnx_frontend.OnnxOpConverter):
        @classmethod
        def _impl_v1(cls, bb, inputs, attr, params):
            return relax.op.nn.relu(inputs[0])

    table = onnx_frontend._get_convert_map() | {"Softplus": Wrong}
    monkeypatch.setattr(onnx_frontend, "_get_convert_map", lambda: table)
    path = _save(tmp_path, f"g (float[2,3] x) => (float[2,3] y) {{ y = {operator}(x) }}")
    network = _load(path, tmp_path)
    assert (operator == "Softplus") == bool(network.segments)
    _check(network, tmp_path)


def test_names_of_segments_stay_the_same(tmp_path):
    path = _save(tmp_path, GRAPHS["boxes"][0])
    first, second = (_load(path, tmp_path).segments[0].name for _ in range(2))
    assert first == second


def test_shapes_that_the_graph_was_not_made_for_are_told(tmp_path):
    graph = """g (float[N,L] x) => (float[N,4] y)
    { s = Constant<value_ints = [-1, 4]>() r = Reshape(x, s) y = Add(r, x) }"""
    with pytest.raises(InputError, match="cannot run it with x: float32"):
        _load(_save(tmp_path, graph), tmp_path, dims=[("L", [8])])


def test_weights_that_protobuf_cannot_hold_lie_beside_the_segment(tmp_path, monkeypatch):
    from tunefleet.compiler.frontends import onnx_segments

    monkeypatch.setattr(onnx_segments, "_MOST_INLINE", 1 << 10)
    graph = """g (float[200,200] x) => (float[N] y)
    { i = NonZero(x) t = Transpose(i) y = GatherND(w, t) }"""
    model = parser.parse_model(_HEAD + graph)
    weight = np.random.default_rng(0).standard_normal((200, 200)).astype("float32")
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    path = tmp_path / "network.onnx"
    onnx.save(model, path)
    network = _load(path, tmp_path)
    beside = list((tmp_path / "segments").glob("*.weights"))
    assert [weight.nbytes] == [file.stat().st_size for file in beside]
    _check(network, tmp_path)


def test_a_large_constant_node_is_a_weight(tmp_path):
    path = _save(tmp_path, "g (float[1,200] x) => (float[1,200] y) { y = MatMul(x, w) }")
    model = onnx.load(path)
    weight = np.random.default_rng(0).standard_normal((200, 200)).astype("float32")
    value = onnx.numpy_helper.from_array(weight)
    model.graph.node.insert(0, onnx.helper.make_node("Constant", [], ["w"], value=value))
    onnx.save(model, path)
    _check(_load(path, tmp_path, whole=True), tmp_path)


@pytest.mark.parametrize("case", ["boxes", "half precision", "text in between"])
def test_a_network_with_segments_and_trials_loads_in_silence(case, tmp_path, capfd):
    path = _save(tmp_path, GRAPHS[case][0])
    capfd.readouterr()
    _load(path, tmp_path)
    assert tuple(capfd.readouterr()) == ("", "")


def test_a_recurrent_layer_that_stays_outside_is_counted() -> None:
    from tunefleet.compiler.frontends.onnx_segments import flops
    from tunefleet.compiler.frontends.onnx_types import ValueType

    node = onnx.helper.make_node(
        "DynamicQuantizeLSTM", ["x", "w", "r"], ["y"], domain="com.microsoft"
    )
    shapes = {"x": (7, 1, 8), "w": (1, 8, 24), "r": (1, 6, 24), "y": (7, 1, 1, 6)}
    types = {name: ValueType("float32", shape) for name, shape in shapes.items()}
    assert flops(node, types) == 2 * 7 * (8 * 24 + 6 * 24)
