"""Attention operators give what ONNX Runtime gives."""

from __future__ import annotations

import numpy as np
import pytest
from tests.compiler.onnx_nodes import check, compiled, convert, feed, model, prepared, random

pytestmark = pytest.mark.tvm

MS = "com.microsoft"
BATCH, TOKENS, HEADS, SIZE = 2, 5, 4, 16
WIDTH = HEADS * SIZE


def _projected(**attrs):
    inputs = [random(BATCH, TOKENS, 6), random(6, 3 * WIDTH, seed=1), random(3 * WIDTH, seed=2)]
    return inputs, {"num_heads": HEADS, "domain": MS, "constants": {1, 2}, **attrs}


def _lengths(*values):
    return np.array(values, "int32")


def _present(*values):
    return np.array(values, "int32").reshape(BATCH, -1)


@pytest.mark.parametrize(
    "mask",
    [None, _lengths(3, 5), _present(1, 1, 1, 0, 0, 1, 1, 0, 1, 1)],
    ids=["none", "lengths", "keys"],
)
@pytest.mark.parametrize("unidirectional", [0, 1])
def test_self_attention_with_masks(mask, unidirectional):
    inputs, form = _projected(unidirectional=unidirectional)
    check("Attention", [*inputs, mask], **form)


@pytest.mark.parametrize("mask", [None, _lengths(3, 5)], ids=["none", "lengths"])
@pytest.mark.parametrize("columns", [1, 3 * WIDTH])
def test_self_attention_of_8_bit_integers(mask, columns):
    generator = np.random.default_rng(0)
    check(
        "QAttention",
        [
            generator.integers(0, 255, (BATCH, TOKENS, 6)).astype("uint8"),
            generator.integers(-127, 127, (6, 3 * WIDTH)).astype("int8"),
            random(3 * WIDTH),
            np.array(0.01, "float32"),
            np.full(columns, 0.02, "float32") if columns > 1 else np.array(0.02, "float32"),
            mask,
            np.array(120, "uint8"),
            np.zeros(columns, "int8") if columns > 1 else np.array(3, "int8"),
        ],
        num_heads=HEADS,
        domain=MS,
        constants={1, 2, 4, 7},
    )


def test_self_attention_with_a_mask_for_each_query():
    inputs, form = _projected()
    mask = (random(BATCH, TOKENS, TOKENS) > -0.5).astype("int32")
    mask[:, :, 0] = 1
    check("Attention", [*inputs, mask], **form)


def test_self_attention_with_a_bias_and_a_scale():
    inputs, form = _projected(scale=0.2)
    check("Attention", [*inputs, None, None, random(BATCH, HEADS, TOKENS, TOKENS)], **form)


def test_self_attention_with_values_of_another_width():
    inputs = [random(BATCH, TOKENS, 6), random(6, 2 * WIDTH + 16, seed=1)]
    inputs.append(random(2 * WIDTH + 16, seed=2))
    sizes = [WIDTH, WIDTH, 16]
    check("Attention", inputs, num_heads=HEADS, qkv_hidden_sizes=sizes, domain=MS)


@pytest.mark.parametrize("unidirectional", [0, 1])
def test_self_attention_goes_on_from_its_past(unidirectional):
    inputs, form = _projected(unidirectional=unidirectional, outputs=["y", "present"])
    past = random(2, BATCH, HEADS, 3, SIZE, seed=4)
    check("Attention", [*inputs, None, past], **form)


def _multi_head(inputs, **form):
    check("MultiHeadAttention", inputs, num_heads=HEADS, domain=MS, **form)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("keys", [TOKENS, 3])
def test_multi_head_attention(bias, keys):
    inputs = [random(BATCH, n, WIDTH, seed=n) for n in (TOKENS, keys, keys)]
    _multi_head([*inputs, random(3 * WIDTH) if bias else None], scale=0.3)


def _run(inputs):
    network = model("MultiHeadAttention", inputs, domain=MS, num_heads=HEADS)
    return compiled(network, feed(network, inputs))[0]


def test_multi_head_attention_of_packed_inputs():
    """ONNX Runtime has no packed inputs on a CPU: the parts tell what to expect."""
    packed = random(BATCH, TOKENS, HEADS, 3, SIZE)
    parts = [packed[:, :, :, i].reshape(BATCH, TOKENS, WIDTH) for i in range(3)]
    plain = _run(parts)
    np.testing.assert_allclose(_run([packed]), plain, rtol=1e-5, atol=1e-6)
    keys = np.ascontiguousarray(packed[:, :, :, 1:])
    np.testing.assert_allclose(_run([parts[0], keys]), plain, rtol=1e-5, atol=1e-6)


def test_multi_head_attention_of_keys_by_heads():
    _multi_head(
        [random(BATCH, TOKENS, WIDTH), *[random(BATCH, HEADS, 3, SIZE, seed=s) for s in (1, 2)]]
    )


@pytest.mark.parametrize(
    "mask", [_lengths(3, 4), _present(1, 1, 1, 0, 0, 1, 1, 0, 1, 1)], ids=["lengths", "keys"]
)
def test_multi_head_attention_with_masks(mask):
    inputs = [random(BATCH, TOKENS, WIDTH, seed=s) for s in range(3)]
    _multi_head([*inputs, None, mask])


@pytest.mark.parametrize("unidirectional", [0, 1])
def test_multi_head_attention_with_a_past_and_a_bias(unidirectional):
    inputs = [random(BATCH, TOKENS, WIDTH, seed=s) for s in range(3)]
    past = [random(BATCH, HEADS, 3, SIZE, seed=s) for s in (7, 8)]
    added = random(1, HEADS, TOKENS, TOKENS + 3)
    _multi_head(
        [*inputs, None, None, added, *past],
        outputs=["y", "k", "v"],
        unidirectional=unidirectional,
    )


def _grouped(inputs, lengths=(TOKENS - 1, TOKENS - 1), tables=(), **form):
    rest = [None, None, _lengths(*lengths), np.array(TOKENS, "int32"), *tables]
    check(
        "GroupQueryAttention",
        [*inputs, *rest],
        num_heads=HEADS,
        kv_num_heads=2,
        domain=MS,
        constants={5, 6, 7, 8},
        outputs=["y", "k", "v"],
        **form,
    )


@pytest.mark.parametrize(
    "form", [{}, {"scale": 0.2}, {"softcap": 3.0}, {"local_window_size": 2}], ids=str
)
def test_grouped_queries_of_a_prompt(form):
    widths = (WIDTH, WIDTH // 2, WIDTH // 2)
    _grouped([random(BATCH, TOKENS, w, seed=i) for i, w in enumerate(widths)], **form)


@pytest.mark.parametrize("interleaved", [0, 1])
def test_grouped_queries_packed_and_rotated(interleaved):
    angles = random(9, SIZE // 2)
    _grouped(
        [random(BATCH, TOKENS, 2 * WIDTH), None, None],
        tables=(np.cos(angles), np.sin(angles)),
        do_rotary=1,
        rotary_interleaved=interleaved,
    )


def test_grouped_queries_with_padding_are_refused():
    inputs: list[np.ndarray | None] = [random(BATCH, TOKENS, w) for w in (WIDTH, WIDTH, WIDTH)]
    inputs = [*inputs, None, None, _lengths(2, 4), np.array(TOKENS, "int32")]
    network = model("GroupQueryAttention", inputs, domain=MS, num_heads=HEADS, kv_num_heads=HEADS)
    with pytest.raises(NotImplementedError, match="GroupQueryAttention"):
        convert(network)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("positions", [[2], [[4, 1, 0, 3, 2], [0, 1, 2, 3, 4]]], ids=["one", "all"])
@pytest.mark.parametrize("shape", [(BATCH, TOKENS, WIDTH), (BATCH, HEADS, TOKENS, SIZE)], ids=str)
def test_rotary_embedding(interleaved, positions, shape):
    angles = random(9, SIZE // 2)
    inputs = [random(*shape), np.array(positions, "int64"), np.cos(angles), np.sin(angles)]
    check("RotaryEmbedding", inputs, domain=MS, constants={2, 3}, interleaved=interleaved)


@pytest.mark.parametrize("heads", [HEADS, 2])
def test_standard_attention(heads):
    inputs = [random(BATCH, TOKENS, n * SIZE, seed=n) for n in (HEADS, heads, heads)]
    check("Attention", inputs, opset=23, q_num_heads=HEADS, kv_num_heads=heads, is_causal=1)


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("hidden", [-np.inf, np.finfo("float32").min, -1e4, False])
@pytest.mark.parametrize("constants", [[], [3]], ids=["computed", "constant"])
def test_a_query_that_may_see_nothing_gets_zeros(causal, hidden, constants):
    """Whole rows, a first key that alone would be seen, and all but the keys after a query."""
    query, key, value = (random(1, 2, 5, 8, seed=seed) for seed in range(3))
    mask = np.ones((5, 5), "bool") if hidden is False else np.zeros((5, 5), "float32")
    mask[1], mask[:, 0], mask[3, :4] = hidden, hidden, hidden
    check(
        "Attention",
        [query, key, value, mask],
        opset=23,
        is_causal=causal,
        constants=constants,
        by=prepared,
    )


@pytest.mark.parametrize("operator", ["Attention", "MultiHeadAttention"])
def test_hidden_keys_before_a_query_are_nearer_than_those_after_it(operator):
    """ONNX Runtime's form of GPT-2, whose texts are padded on the left."""
    mask = _present(0, 0, 1, 1, 1, 1, 1, 1, 1, 1)
    inputs, form = _projected(unidirectional=1)
    if operator != "Attention":
        parts = [random(BATCH, TOKENS, WIDTH, seed=seed) for seed in range(3)]
        inputs, form["constants"] = [*parts, random(3 * WIDTH)], {3}
    check(operator, [*inputs, mask], **form)
