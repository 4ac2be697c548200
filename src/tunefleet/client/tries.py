"""What every client of a service does: the tries of one call, and what came of a job."""

from __future__ import annotations

import random
from typing import Any

import httpx2 as httpx

from tunefleet.client import calls
from tunefleet.client.calls import Answer, Call
from tunefleet.core.result import RunResult
from tunefleet.errors import RetryElsewhereError
from tunefleet.report.result import read_result

#: Seconds of a connection and of an answer, and between two tries of a call that got none.
TIMEOUT = httpx.Timeout(60.0, connect=10.0)
PAUSES_S = (0.2, 0.5, 1.0, 2.0, *[3.0] * 8)
#: Further tries of a call that waits anyway, as for the end of a job: a service may begin again.
_WAITS = 80
_NOT_REACHED = (httpx.ConnectError, httpx.ConnectTimeout)
#: The service is busy, or begins.
_LATER = (429, 502, 503, 504)


class Tries:
    """The tries of one call: each call may be sent again, since the service knows it."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._is_wait = "Prefer" in call.headers
        self._begin()

    def _begin(self) -> None:
        self._left = [*PAUSES_S, *[PAUSES_S[-1]] * (_WAITS * self._is_wait)]

    def request(self) -> dict[str, Any]:
        call = self._call
        return {
            "method": call.method,
            "url": call.path,
            "params": dict(call.params),
            "headers": dict(call.headers),
            **({"json": call.value} if call.value is not None else {}),
            **({"content": call.content} if call.content is not None else {}),
        }

    def pause_s(
        self, response: httpx.Response | None, error: httpx.TransportError | None
    ) -> float | None:
        """How long to wait before the call is sent again; None where it is answered."""
        if self._is_wait and error is not None and not isinstance(error, _NOT_REACHED):
            self._begin()  # the service was there, and ended while it waited
        least = response.headers.get("retry-after", "") if response is not None else ""
        later = response is None or response.status_code in _LATER or least
        if not (later and self._left):
            return None
        # Not all clients at the same moment: a service that begins again has them all at once.
        pause_s = self._left.pop(0) * random.uniform(0.5, 1.5)
        return max(pause_s, float(least) if least.isdigit() else 0.0)

    def answer(self, response: httpx.Response | None, error: Exception | None) -> Answer:
        """Raises what the service refuses, and RetryElsewhereError where it does not answer."""
        if response is None:
            cure = "see its address, and that it runs"
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                cure = "name the file of the authority that signed it: SSL_CERT_FILE=FILE"
            raise RetryElsewhereError(f"the service does not answer: {error}", cure=cure) from error
        answer = Answer(response.status_code, dict(response.headers), response.content)
        if response.is_success or answer.status in self._call.accepted:
            return answer
        raise calls.error_of(answer)


def headers_of(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def result_of(view: dict[str, Any]) -> RunResult:
    """Of a job that has ended. Raises JobError for one that did not succeed."""
    return read_result(calls.value_of_job(view), f"job {view['id'][:8]}")
