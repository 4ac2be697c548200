"""One model for many devices with continued training, little forgetting, and uncertainty.

The score combines two models: a network (linear layers, attention with 8 heads and a residual,
linear layers, a sum over the rows), trained with LambdaRank, and boosted trees on whole programs.
Each training is a chapter:

- The network continues from its weights, with selective synaptic plasticity (`_plasticity.py`) and
  with a few programs of earlier chapters among the new ones (`replay`).
- Each chapter has its own trees, and trees that are also trained on the replayed programs. A part
  of its validation records, if there are enough, decides the network's share in its score. They are
  ranked again after each later chapter. If the network then orders fewer pairs correctly, the
  chapter keeps the earlier network: later trainings do not make it worse. The device of a program
  decides its chapter (`_domains.py`).
- On an unseen device the network is ignored, since it has no committee; the committees of
  `_forest.py` estimate how far knowledge transfers between devices. The fewer rows of its programs
  were trained on, and the more the members disagree, the more the score relies on what holds on
  every device (`_reach.py`): a wrong prediction is worse than none.

Sources: Zhai et al., TLP, ASPLOS 2023; Wang et al., UniCoMo, ICCD 2024; `_plasticity.py` for the
rest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tunefleet.costmodel._attention_training import Training
from tunefleet.costmodel._base import (
    CostModel,
    Distinct,
    InputForm,
    LabelledPrograms,
    ProgramRows,
    Scores,
)
from tunefleet.costmodel._chapter import Chapter, best_share, usual_share
from tunefleet.costmodel._domains import Domains
from tunefleet.costmodel._forest import Forest, parts_of
from tunefleet.costmodel._lists import groups_of, set_aside
from tunefleet.costmodel._plasticity import METHODS, Plasticity, after
from tunefleet.costmodel._reach import Reach
from tunefleet.costmodel._rows import DistinctRows
from tunefleet.costmodel._sample import Sample
from tunefleet.costmodel._tensors import FORMAT, arrays_below, arrays_in, dumps, loads
from tunefleet.costmodel._torch import one_thread
from tunefleet.costmodel.attention import LIST, AttentionModel

#: Older formats have no trees with replay; in the oldest all chapters use the last network.
_FORMAT, *_FORMATS_BEFORE = "tunefleet-unified/4", "tunefleet-unified/3", "tunefleet-unified/2"

#: Maximum number of lists for the importance of weights.
_JUDGED = 128
#: Maximum number of kept validation programs per chapter.
_KNOWN = 1024
#: Replayed programs per task: fewer would have little order to remember.
_REPLAYED = 16
#: Bound of the replayed programs, in multiples of one chapter's: it bounds the training time.
_CHAPTERS = 4
#: Defaults of continued training.
_NEW_EPOCHS, _NEW_RATE = 30, 1e-3
#: Decay of a chapter's weight with the share of differing device features.
_NEARNESS = 20.0
#: Chapters with less than this share of the nearest chapter's weight are skipped.
_LEAST_SAY = 0.01

Codes = NDArray[np.int64]


class UnifiedModel(CostModel):
    name = "unified"
    input_form = InputForm.ROWS
    learns_on = True

    def __init__(
        self,
        hidden: int = 64,
        epochs: int = 30,
        plasticity: str = "squared",
        strength: float = 0.1,
        replay: int = 1024,
        seed: int = 0,
        device: str = "cpu",
    ) -> None:
        """`plasticity` is one of `_plasticity.METHODS`, `strength` its weight in the loss, 0 for
        none; `replay` is the number of programs kept per chapter for replay, with four times as
        many in total."""
        held = plasticity in METHODS and 0 <= strength < np.inf
        if not held or replay < 0 or min(hidden, epochs) < 1:
            raise ValueError(
                f"width {hidden}, plasticity {plasticity!r}, strength {strength}, replay {replay}"
            )
        if hidden % _HEADS:
            raise ValueError(f"{hidden} is not a multiple of its {_HEADS} heads")
        self.hidden = hidden
        self.epochs = epochs
        self.plasticity = plasticity
        self.strength = strength
        self.replay = replay
        self.seed = seed
        self.device = device
        #: The network that is trained further. Chapters may keep earlier versions.
        self._net = AttentionModel()
        self._chapters: tuple[Chapter, ...] = ()
        self._kept: Plasticity | None = None
        self._replay = Sample()

    @property
    def remembered(self) -> Sequence[LabelledPrograms]:
        return [c.known.measured() for c in self._chapters if c.known.programs]

    @property
    def network(self) -> AttentionModel:
        """The current network without the trees."""
        return self._net

    def fit(
        self,
        programs: Sequence[ProgramRows],
        labels: Scores,
        tasks: Sequence[str],
        validation: LabelledPrograms | None = None,
    ) -> Self:
        """Raises SetupError without torch."""
        return self.learn(LabelledPrograms(programs, np.asarray(labels, float), tasks), validation)

    def learn(self, given: LabelledPrograms, validation: LabelledPrograms | None = None) -> Self:
        train, held = self._parts(given, validation)
        self._net = AttentionModel(
            self.hidden, _HEADS, epochs=self.epochs, patience=self.epochs, loss="lambdarank",
            error_weight=_ERROR_WEIGHT, seed=self.seed, device=self.device,
        )  # fmt: skip
        self._net.follows_path = self.plasticity == "path"
        self._net.fit(train.programs, train.labels, train.tasks, held)
        self._chapters, self._kept, self._replay = (), None, Sample()
        self._close(train, held)
        return self

    def learned_on(
        self,
        given: LabelledPrograms,
        validation: LabelledPrograms,
        *,
        seed: int,
        device: str,
        epochs: int | None = None,
    ) -> Self:
        model = self.load(self.save())
        model.seed, model.device, model.epochs = seed, device, epochs or _NEW_EPOCHS
        model._add(given, validation)
        return model

    def _add(self, given: LabelledPrograms, validation: LabelledPrograms) -> None:
        self._net = net = AttentionModel.load(self._net.save())
        again = self._replay.among(given)
        net.seed, net.device = self.seed, self.device
        net.follows_path = self.plasticity == "path"
        net.partial_fit(
            again.programs, again.labels, again.tasks, validation,
            epochs=self.epochs, learning_rate=_NEW_RATE,
            keep=self._kept.kept(self.strength) if self._kept else None,
        )  # fmt: skip
        self._close(given, validation)

    def _parts(
        self, given: LabelledPrograms, validation: LabelledPrograms | None
    ) -> tuple[LabelledPrograms, LabelledPrograms]:
        if validation is not None:
            return given, validation
        return set_aside(given, np.random.default_rng(self.seed))

    def _close(self, train: LabelledPrograms, held: LabelledPrograms) -> None:
        """Add the chapter of the training just done, and update the plasticity."""
        groups = groups_of(train.devices or [""] * len(train.tasks))
        parts = parts_of(groups if len(groups) > 2 else groups_of(train.tasks))
        before = self._replay.measured() if self._replay.programs else None
        forest = Forest.fit(train.programs, train.labels, parts, self.seed, before)
        of_trees = forest.predict(held.programs)
        of_net, usual = self._net.predict(held.programs), usual_share(forest)
        _, share = best_share(held, of_net, of_trees, usual)
        known = Sample.of(held, _KNOWN, LIST, self.seed)
        by_member = forest.by_member(forest.rows(train.programs))
        reach = Reach.of(train, parts, by_member, held, of_trees)
        self._chapters = tuple(chapter.scored_by(self._net) for chapter in self._chapters)
        self._chapters += (Chapter(forest, Domains.of(train), reach, self._net, share, known),)
        if self.strength > 0:
            self._kept = self._judged(train)
        if self.replay:
            again = Sample.of(train, self.replay, _REPLAYED, self.seed)
            together = self._replay.beside(again)
            self._replay = together.at_most(_CHAPTERS * self.replay, self.seed)

    def _judged(self, train: LabelledPrograms) -> Plasticity:
        generator = np.random.default_rng(self.seed)
        lists = [generator.permutation(group)[:LIST] for group in groups_of(train.tasks)]
        lists = [lists[i] for i in generator.permutation(len(lists))[:_JUDGED]]
        parameters = self._net.training_parameters(dropout=0.0)
        with one_thread():
            data = DistinctRows.of(train.programs)
            training = Training(parameters, self._net.weights, data, train.labels, 0.0)
            path, start = self._net.path, self._net.path_start
            return after(training, lists, self._kept, self.plasticity, path, start)

    def predict(self, programs: Sequence[ProgramRows]) -> Scores:
        """Expected labels. On unseen devices they depend on the other programs of the same task in
        `programs`, which determine how much is known about them."""

        def of_network(network: AttentionModel, _: int, numbers: Codes) -> Scores:
            return network.predict([programs[i] for i in numbers])

        (scores,) = self._scored([programs], of_network)
        return scores

    def predict_distinct(self, distinct: Sequence[ProgramRows], local: Codes) -> Scores:
        (scores,) = self.predict_lists([(distinct, local)])
        return scores

    def predict_lists(self, lists: Sequence[Distinct]) -> list[Scores]:
        def of_network(network: AttentionModel, which: int, numbers: Codes) -> Scores:
            distinct, local = lists[which]
            return network.predict_distinct(distinct, local[numbers])

        each = [list(np.concatenate(distinct)[local]) for distinct, local in lists]
        return self._scored(each, of_network)

    def _scored(
        self,
        lists: Sequence[Sequence[ProgramRows]],
        of_network: Callable[[AttentionModel, int, Codes], Scores],
    ) -> list[Scores]:
        """`of_network` returns a network's scores of some of the programs of a list. Trees take the
        programs of all lists at once: a call takes as long as a hundred of them."""
        if not self._chapters:
            raise ValueError("predict before fit")
        ends = np.cumsum([len(each) for each in lists])
        programs = list(chain.from_iterable(lists))
        if not programs:
            return [np.zeros(0) for _ in lists]
        places = np.split(np.arange(len(programs)), ends[:-1])
        self._net.check_columns(programs)
        away = np.array([c.domains.distance(programs) for c in self._chapters])
        say = np.exp(-_NEARNESS * (away - away.min(axis=0)))
        say[say < _LEAST_SAY] = 0.0
        say /= say.sum(axis=0)
        unseen = away.min(axis=0) > 0
        tables = {
            number: chapter.forest.rows(programs)
            for number, chapter in enumerate(self._chapters)
            if say[number].any()
        }
        of_trees = np.zeros(len(programs))
        for number, rows in tables.items():
            of_trees += say[number] * self._chapters[number].forest.predict(programs, rows)
        # A network has no committee to estimate its uncertainty on other devices.
        say_of_networks = np.where(unseen, 0.0, say)
        scores = of_trees.copy()
        for network in self._networks():
            share = sum(
                chapter.share * of_chapter
                for chapter, of_chapter in zip(self._chapters, say_of_networks, strict=True)
                if chapter.network is network
            )
            shared = np.broadcast_to(share != 0, len(programs))
            for which, place in enumerate(places):
                numbers = place[shared[place]]
                if len(numbers):
                    said = of_network(network, which, numbers - place[0])
                    scores[numbers] += share[numbers] * (said - of_trees[numbers])
        for chapter, own in self._doubted(say, [place[unseen[place]] for place in places]).items():
            self._doubt(chapter, scores, programs, tables[chapter], own, of_trees)
        return np.split(scores, ends[:-1])

    def _doubted(self, say: NDArray[np.float64], lists: Sequence[Codes]) -> dict[int, list[Codes]]:
        """The programs on unseen devices by the number of the chapter that knows most of their
        list."""
        found: dict[int, list[Codes]] = {}
        for numbers in lists:
            if len(numbers):
                most = int(say[:, numbers].sum(axis=1).argmax())
                found.setdefault(most, []).append(numbers)
        return found

    def _networks(self) -> list[AttentionModel]:
        """The kept networks of chapters, then the current one."""
        kept = {id(chapter.network): chapter.network for chapter in self._chapters}
        kept.pop(id(self._net), None)
        return [*kept.values(), self._net]

    def _doubt(
        self,
        number: int,
        scores: Scores,
        programs: Sequence[ProgramRows],
        table: NDArray[np.float32],
        lists: Sequence[Codes],
        of_trees: Scores,
    ) -> None:
        """Scores on an unseen device, adjusted by the committee and by typicality."""
        chapter = self._chapters[number]
        together = np.concatenate(lists)
        by_member = chapter.forest.by_member(table[together])
        if not len(by_member):
            return
        scores[together] += (by_member.mean(axis=0) - of_trees[together]) / 2
        ends = np.cumsum([len(each) for each in lists])
        for numbers, members in zip(lists, np.split(by_member, ends[:-1], axis=1), strict=True):
            own = [programs[i] for i in numbers]
            for device in chapter.domains.devices(own):
                of_device = [own[i] for i in device]
                tasks = [device[each] for each in chapter.domains.lists(of_device)]
                agreed = _agreed(members, tasks)
                for task in tasks:
                    rows = numbers[task]
                    of_task = [own[i] for i in task]
                    scores[rows] = chapter.reach.mixed(scores[rows], of_task, agreed)

    def save(self) -> bytes:
        if not self._chapters:
            raise ValueError("save before fit")
        networks = self._networks()
        arrays: dict[str, NDArray[Any]] = {
            f"net{number}": np.frombuffer(network.save(), np.uint8)
            for number, network in enumerate(networks)
        }
        for number, chapter in enumerate(self._chapters):
            by = [network is chapter.network for network in networks].index(True)
            arrays |= arrays_in(f"chapter{number}", chapter.arrays() | {"network": np.array([by])})
        if self._kept is not None:
            arrays |= arrays_in("kept", self._kept.arrays())
        arrays |= arrays_in("replay", self._replay.arrays())
        settings = {
            name: getattr(self, name)
            for name in ("hidden", "epochs", "plasticity", "strength", "replay", "seed")
        }
        return dumps(arrays, {FORMAT: _FORMAT, "settings": json.dumps(settings)})

    @classmethod
    def load(cls, data: bytes) -> Self:
        arrays, header = loads(data, _FORMAT, *_FORMATS_BEFORE)
        try:
            model = cls(**json.loads(header["settings"]))
            networks = [
                AttentionModel.load(arrays[name].tobytes())
                for name in sorted(
                    (name for name in arrays if name.startswith("net")),
                    key=lambda name: int(name.removeprefix("net") or 0),
                )
            ]
            model._net = networks[-1]
            if len({len(network.weights["mean"]) for network in networks}) > 1:
                raise ValueError("networks with different columns")
            count = len({name.split("/")[0] for name in arrays if name.startswith("chapter")})
            model._chapters = tuple(
                Chapter.of_arrays(arrays_below(arrays, f"chapter{number}"), networks)
                for number in range(count)
            )
            if not count:
                raise ValueError("it is untrained")
            model._kept = Plasticity.of_arrays(arrays_below(arrays, "kept"))
            model._replay = Sample.of_arrays(arrays_below(arrays, "replay"))
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise ValueError(f"not a unified cost model: {error}") from error
        return model


_HEADS = 8
#: Weight of the squared error in the loss: scores are labels too.
_ERROR_WEIGHT = 1.0


def _agreed(by_member: NDArray[np.float64], lists: Sequence[NDArray[np.int64]]) -> float:
    """The share of the variance between programs of a task that is not noise, from the members'
    labels (members, programs). The variance is that of the members' mean; its noise is the
    jackknife estimate of the variance of that mean (Efron and Stein, 1981)."""
    seen = noise = 0.0
    for own in lists:
        within = by_member[:, own] - by_member[:, own].mean(axis=1, keepdims=True)
        seen += float((within.mean(axis=0) ** 2).sum())
        noise += (len(by_member) - 1) * float(within.var(axis=0).sum())
    return seen / (seen + noise) if seen > 0 else 0.0
