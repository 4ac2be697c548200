"""Schema `behaviours/1`: what the loops of a lowered program do, as numbers."""

from __future__ import annotations

import numpy as np

from tunefleet.features.behaviours import (
    LONGEST,
    LOOPS,
    PARTS,
    WIDTH,
    Access,
    Behaviour,
    Compute,
    Loop,
    Move,
    Run,
    Statement,
    behaviours_of,
    encode,
)

TOLD = np.arange(32, dtype=np.float32)

#: C[i, j] += A[i, k] * B[k, j] of 8 x 16 with 4 steps: i in parallel, j in vectors.
LOOPS_OF_IT = (Loop(8, Run.PARALLEL), Loop(4), Loop(16, Run.VECTORIZED))


def access(*moves: tuple[int, int], elements: int, **told: bool) -> Access:
    return Access(tuple(Move(*move) for move in moves), 4.0, elements, **told)


STATEMENT = Statement(
    LOOPS_OF_IT,
    (
        access((4, 8), (1, 4), (0, 1), elements=32, argument=True),
        access((0, 1), (16, 4), (1, 16), elements=64),
    ),
    Compute(additions=1, products=1),
    access((16, 8), (0, 1), (1, 16), elements=128, argument=True),
)


def test_a_program_is_its_context_then_loads_computation_and_store() -> None:
    rows = encode([STATEMENT], TOLD)
    assert rows.shape == (5, WIDTH)
    np.testing.assert_array_equal(rows[:, :4].argmax(axis=1), [0, 1, 1, 2, 3])
    np.testing.assert_array_equal(rows[0, 4:36], TOLD)
    assert not rows[1:, 4:36].any()


def test_loops_are_told_from_the_innermost_with_what_an_access_does_in_them() -> None:
    _, first, _, compute, store = encode([STATEMENT], TOLD)
    # Extent, parallel, vectorized, unrolled, bound, stride, whether by one.
    innermost, middle, outermost = (first[at : at + 7] for at in (36, 43, 50))
    np.testing.assert_allclose(innermost, [np.log2(17), 0, 1, 0, 0, 0, 0])
    np.testing.assert_allclose(middle, [np.log2(5), 0, 0, 0, 0, 1, 1])
    np.testing.assert_allclose(outermost, [np.log2(9), 1, 0, 0, 0, np.log2(5), 0])
    assert not first[57:120].any()
    np.testing.assert_allclose(first[120], np.log2(1 + 8 * 4 * 16))
    np.testing.assert_array_equal(compute[36:121], store[36:121])


def test_what_an_access_touches_is_told_at_several_depths() -> None:
    _, data, weights, *_ = encode([STATEMENT], TOLD)
    # All, 2, 4 and 6 innermost loops, then how often each is used.
    np.testing.assert_allclose(2 ** data[124:128] - 1, [128, 16, 128, 128], rtol=1e-5)
    np.testing.assert_allclose(2 ** data[128] - 1, 512 / 32, rtol=1e-5)
    np.testing.assert_allclose(2 ** weights[124:128] - 1, [256, 256, 256, 256], rtol=1e-5)
    assert (data[129], weights[129]) == (1.0, 0.0)


def test_instructions_are_told_apart() -> None:
    plain = Compute(additions=1, products=1)
    of_it = [
        encode([Statement((), (), compute, access(elements=16))], TOLD)[1, 131:]
        for compute in (plain, *(Compute(instruction=name, instruction_lanes=16) for name in "ab"))
    ]
    assert of_it[0][6] == 0.0
    assert len({row.tobytes() for row in of_it}) == 3


def test_what_does_not_fit_is_cropped() -> None:
    deep = Statement(
        (Loop(2),) * (LOOPS + 3), (), Compute(), access(*[(1, 2)] * (LOOPS + 3), elements=9)
    )
    rows = encode([deep] * LONGEST, TOLD)
    assert rows.shape == (LONGEST, WIDTH)
    np.testing.assert_allclose(rows[1, 120], np.log2(1 + 2.0 ** (LOOPS + 3)), rtol=1e-6)


def test_rows_tell_what_they_are_of() -> None:
    instruction = Statement(
        LOOPS_OF_IT, STATEMENT.loads, Compute(instruction="vnni.16x4"), STATEMENT.loads[1]
    )
    clearing = Statement(LOOPS_OF_IT, (), Compute(), STATEMENT.store)
    assert behaviours_of(encode([STATEMENT, instruction, clearing], TOLD)) == [
        Behaviour.PROGRAM,
        *(Behaviour.LOAD_ARGUMENT, Behaviour.LOAD, Behaviour.PRODUCTS, Behaviour.STORE_OUTPUT),
        *(Behaviour.LOAD_ARGUMENT, Behaviour.LOAD, Behaviour.INSTRUCTION, Behaviour.STORE),
        *(Behaviour.COMPUTE, Behaviour.STORE_OUTPUT),
    ]


def test_each_number_of_a_behaviour_is_of_one_part() -> None:
    columns = sorted(column for part in PARTS.values() for column in part)
    assert columns == list(range(36, WIDTH))
