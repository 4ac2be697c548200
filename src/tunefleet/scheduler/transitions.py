"""The states of a stage and every move between them, in one table."""

from __future__ import annotations

from enum import StrEnum

from tunefleet.errors import InternalError


class StageState(StrEnum):
    WAITING = "waiting"  # for earlier stages of its lane
    READY = "ready"  # for a resource
    RUNNING = "running"
    STOPPING = "stopping"  # abandoned, but its worker still holds the resource
    DONE = "done"
    FAILED = "failed"
    ABANDONED = "abandoned"


class Move(StrEnum):
    ENABLE = "enable"
    START = "start"
    FINISH = "finish"
    RETRY = "retry"
    FAIL = "fail"
    STOP = "stop"
    STOPPED = "stopped"
    DROP = "drop"
    SKIP = "skip"
    LOSE = "lose"
    REOPEN = "reopen"


TRANSITIONS: dict[tuple[StageState, Move], StageState] = {
    (StageState.WAITING, Move.ENABLE): StageState.READY,
    (StageState.WAITING, Move.DROP): StageState.ABANDONED,
    # The select before it found nothing to build.
    (StageState.WAITING, Move.SKIP): StageState.DONE,
    (StageState.READY, Move.START): StageState.RUNNING,
    (StageState.READY, Move.DROP): StageState.ABANDONED,
    (StageState.RUNNING, Move.FINISH): StageState.DONE,
    (StageState.RUNNING, Move.RETRY): StageState.READY,
    (StageState.RUNNING, Move.FAIL): StageState.FAILED,
    (StageState.RUNNING, Move.STOP): StageState.STOPPING,
    # What an earlier stage of its round made is gone: that one is opened again, this one waits.
    (StageState.RUNNING, Move.LOSE): StageState.WAITING,
    (StageState.DONE, Move.REOPEN): StageState.READY,
    (StageState.STOPPING, Move.STOPPED): StageState.ABANDONED,
    # It was told to stop and had finished just before: its result counts.
    (StageState.STOPPING, Move.FINISH): StageState.DONE,
}


def moved(state: StageState, move: Move, story: object) -> StageState:
    """The state after a move; an unknown move is our bug and raises with the lane's story."""
    try:
        return TRANSITIONS[state, move]
    except KeyError:
        raise InternalError(f"a {state} stage cannot {move}: {story}") from None
