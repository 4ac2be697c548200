"""The states of a stage and the table of all transitions."""

from __future__ import annotations

from enum import StrEnum

from tunefleet.errors import InternalError


class StageState(StrEnum):
    WAITING = "waiting"  # for earlier stages of its lane
    READY = "ready"  # waits for a resource
    RUNNING = "running"
    STOPPING = "stopping"  # abandoned, but its worker still holds the resource
    DONE = "done"
    FAILED = "failed"
    ABANDONED = "abandoned"


class Transition(StrEnum):
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


TRANSITIONS: dict[tuple[StageState, Transition], StageState] = {
    (StageState.WAITING, Transition.ENABLE): StageState.READY,
    (StageState.WAITING, Transition.DROP): StageState.ABANDONED,
    # The preceding select found no candidates.
    (StageState.WAITING, Transition.SKIP): StageState.DONE,
    (StageState.READY, Transition.START): StageState.RUNNING,
    (StageState.READY, Transition.DROP): StageState.ABANDONED,
    (StageState.RUNNING, Transition.FINISH): StageState.DONE,
    (StageState.RUNNING, Transition.RETRY): StageState.READY,
    (StageState.RUNNING, Transition.FAIL): StageState.FAILED,
    (StageState.RUNNING, Transition.STOP): StageState.STOPPING,
    # The output of an earlier stage of its round is gone: that one is reopened, this one waits.
    (StageState.RUNNING, Transition.LOSE): StageState.WAITING,
    (StageState.DONE, Transition.REOPEN): StageState.READY,
    (StageState.STOPPING, Transition.STOPPED): StageState.ABANDONED,
    # It finished just before it was stopped: its result counts.
    (StageState.STOPPING, Transition.FINISH): StageState.DONE,
}


def moved(state: StageState, move: Transition, story: object) -> StageState:
    """The state after a transition; an unknown one is a bug and raises with the lane's story."""
    try:
        return TRANSITIONS[state, move]
    except KeyError:
        raise InternalError(f"a {state} stage cannot {move}: {story}") from None
