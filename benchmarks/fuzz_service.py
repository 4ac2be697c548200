"""Requests that schemathesis makes of the service's OpenAPI document: is any answered with 5xx?

Chains of calls follow what one answer gives the next (stateful), between calls of every route; in
half of them ids are those of what is there, and bodies ask for networks that there are. The
application answers in this process, with a store and without a scheduler: another thread ends jobs
meanwhile. Rates are without bound, and waits short. Needs `pip install schemathesis`.

    .venv/bin/python benchmarks/fuzz_service.py --requests 100000 --json out.json
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib.util
import random
import tempfile
import threading
import time
from collections import Counter, defaultdict
from contextlib import closing
from pathlib import Path
from typing import Any

import common
from tunefleet.core.events import JobEnded, Note
from tunefleet.core.job import JobState
from tunefleet.service import routes_jobs
from tunefleet.service.app import ServiceSettings, service_app
from tunefleet.service.caller import Rates
from tunefleet.service.tokens import new_token
from tunefleet.store import SqlStore, User, each_job, open_store

#: Calls of a chain, and chains between two looks at how many requests there were.
_CHAIN, _CHAINS = 20, 25
_USER = "ann"
#: Of each kind of thing that are remembered.
_REMEMBERED = 30


class Counted:
    """An ASGI application that counts answers, and keeps what was asked where one is 5xx."""

    def __init__(self, app: Any, answers: Counter[tuple[str, str, int]], bad: list[str]) -> None:
        self._app = app
        self._answers = answers
        self._bad = bad

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def sent(message: Any) -> None:
            if message["type"] == "http.response.start":
                route = getattr(scope.get("route"), "path", scope["path"])
                self._answers[scope["method"], route, message["status"]] += 1
                if message["status"] >= 500:
                    asked = f"{scope['method']} {scope['path']}?{scope['query_string'].decode()}"
                    self._bad.append(f"{message['status']} {asked}")
            await send(message)

        await self._app(scope, receive, sent)


class Fuzzed:
    """A service with one user, who is an admin, and what is known to be there."""

    def __init__(self, home: Path, store: SqlStore, seed: int) -> None:
        self.store = store
        self.answers: Counter[tuple[str, str, int]] = Counter()
        self.bad: list[str] = []
        self._draw = random.Random(seed)
        self._there: defaultdict[str, list[str]] = defaultdict(list)
        self.app = service_app(home, store, ServiceSettings(most_bytes=1 << 20))
        self.app.state.user_rates = self.app.state.address_rates = Rates(1e9, 1e9)
        self.app.add_middleware(Counted, answers=self.answers, bad=self.bad)
        store.accounts.put_user(User(_USER, admin=True, created_at=time.time()))
        self._there["name"] = [_USER]
        self._renew()

    def _renew(self) -> None:
        text, token = new_token(_USER, time.time(), admin=True)
        self.store.accounts.put_token(token)
        self.headers = {"Authorization": f"Bearer {text}", "Accept": "application/json"}

    @property
    def requests(self) -> int:
        return sum(self.answers.values())

    def share_of(self, statuses: range) -> float:
        """Of the answers, those with such a status."""
        found = sum(n for (_, _, status), n in self.answers.items() if status in statuses)
        return found / self.requests

    def aim(self, case: Any) -> None:
        """Let half of the calls be about what is there."""
        if self._draw.random() < 0.5:
            return
        for name in case.path_parameters or {}:
            if self._there[name]:
                case.path_parameters[name] = self._draw.choice(self._there[name])
        if not isinstance(case.body, dict):
            return
        if case.operation.path == "/v1/jobs":
            sizes = f"zoo:tiny_cnn?size={self._draw.randrange(16, 64)}"
            networks = [sizes, *self._there["digest"]]
            case.body["network"] = self._draw.choice(networks)
        if case.operation.path == "/v1/uploads":
            content = self._draw.randbytes(4)
            digest = hashlib.sha256(content).hexdigest()
            case.body |= {"digest": digest, "name": "net.onnx", "size": len(content)}
            self._remember("digest", digest)

    def learn(self, case: Any, response: Any) -> None:
        """Of an answer: what is there now, and whether the token is over."""
        if response.status_code == 401:
            self._renew()
        if response.status_code != 201:
            return
        value = response.json()
        names = {"/v1/jobs": ("id", "job_id"), "/v1/tokens": ("id", "token_id")}
        names |= {"/v1/users": ("name", "name"), "/v1/shares": ("readers", "reader")}
        key, name = names.get(case.operation.path, ("", ""))
        if key in value:
            found = value[key]
            self._remember(name, found if isinstance(found, str) else found[0])

    def _remember(self, name: str, value: str) -> None:
        there = self._there[name]
        there.append(value)
        if len(there) > _REMEMBERED:
            del there[self._draw.randrange(len(there))]


def end_jobs(home: Path, ended: threading.Event, seed: int) -> None:
    """As a scheduler would: something happens to jobs, and they end in some state."""
    draw = random.Random(seed)
    states = [state for state in JobState if state is not JobState.RUNNING]
    with closing(open_store(home)) as store:
        while not ended.wait(0.5):
            for job in list(each_job(store.jobs, state=JobState.RUNNING))[:-20]:
                store.events.append(job.job_id, time.time(), [Note("a mock event"), JobEnded()])
                store.jobs.finish(job.job_id, draw.choice(states), {"stopped": "a mock device"})


def fuzzed(home: Path, requests: int, seed: int, *, same_each_time: bool) -> Fuzzed:
    import hypothesis
    import schemathesis

    schemathesis.serializer.alias("application/offset+octet-stream", "application/octet-stream")
    with closing(open_store(home)) as store:
        fuzzed = Fuzzed(home, store, seed)
        schema: Any = schemathesis.openapi.from_asgi("/openapi.json", fuzzed.app)

        class Chain(schema.as_state_machine()):  # type: ignore[misc]
            """One chain of calls."""

            def get_call_kwargs(self, case: Any) -> dict[str, Any]:
                return {"headers": fuzzed.headers}

            def before_call(self, case: Any) -> None:
                fuzzed.aim(case)

            def after_call(self, response: Any, case: Any) -> None:
                fuzzed.learn(case, response)

            def validate_response(self, response: Any, case: Any, **how: Any) -> None:
                """What is judged is counted by `Counted`."""

        settings = hypothesis.settings(
            max_examples=_CHAINS,
            stateful_step_count=_CHAIN,
            deadline=None,
            database=None,
            derandomize=same_each_time,
            suppress_health_check=list(hypothesis.HealthCheck),
            phases=[hypothesis.Phase.generate],
        )
        every = [found.ok().as_strategy() for found in schema.get_all_operations()]

        @hypothesis.settings(settings, max_examples=_CHAIN * _CHAINS // 2)
        @hypothesis.given(hypothesis.strategies.one_of(every))
        def one_by_one(case: Any) -> None:
            fuzzed.aim(case)
            fuzzed.learn(case, case.call(headers=fuzzed.headers))

        ended = threading.Event()
        ending = threading.Thread(target=end_jobs, args=(home, ended, seed))
        ending.start()
        try:
            while fuzzed.requests < requests and not fuzzed.bad:
                # What the service answers is not the same each time, which hypothesis may notice.
                with contextlib.suppress(hypothesis.errors.Flaky):
                    Chain.run(settings=settings)
                with contextlib.suppress(hypothesis.errors.Flaky):
                    one_by_one()
                print(f"{fuzzed.requests} requests, {len(fuzzed.bad)} of them 5xx", flush=True)
        finally:
            ended.set()
            ending.join()
        return fuzzed


def main(options: argparse.Namespace) -> int:
    if importlib.util.find_spec("schemathesis") is None:
        raise common.Skip("schemathesis is not installed")
    started, requests = time.time(), 300 if options.quick else options.requests
    routes_jobs._LONGEST_WAIT_S = 0.05
    with tempfile.TemporaryDirectory() as folder:
        result = fuzzed(Path(folder), requests, options.seed, same_each_time=options.quick)
        reports = sorted(Path(folder).glob("bugs/*"))
        for text in [*result.bad[:5], *(report.read_text("utf-8") for report in reports[:3])]:
            print(text)
    routes = Counter[str]()
    for (method, route, _), n in result.answers.items():
        routes[f"{method} {route}"] += n
    figures = {
        "requests": result.requests,
        "routes": len(routes),
        "succeeded": result.share_of(range(200, 400)),
        "refused": result.share_of(range(400, 500)),
        "errors": len(result.bad),
    }
    common.table([figures], list(figures))
    checks = [
        common.at_least("requests", result.requests, 100_000, "condition"),
        common.at_most("answers with 5xx", len(result.bad), 0, "condition", any_size=True),
        common.at_least("share that succeeded", figures["succeeded"], 0.2, "aim"),
    ]
    return common.finish("fuzz_service", started, figures, checks, options.json)


if __name__ == "__main__":
    made = common.parser("Requests made of the service's OpenAPI document.")
    made.add_argument("--requests", type=int, default=100_000)
    made.add_argument("--seed", type=int, default=1)
    common.run(main, made)
