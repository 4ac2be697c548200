"""What both clients share: the attempts of one call, and the result of a job."""

from __future__ import annotations

import random
from typing import Any

import httpx2 as httpx

from tunefleet.client import calls
from tunefleet.client.calls import Answer, Call
from tunefleet.core.result import RunResult
from tunefleet.errors import RetryElsewhereError
from tunefleet.report.result import read_result

#: Time limits of a connection and of a response, and pauses between attempts, in seconds.
TIMEOUT = httpx.Timeout(60.0, connect=10.0)
PAUSES_S = (0.2, 0.5, 1.0, 2.0, *[3.0] * 8)
#: Further attempts of a call that waits, as for the end of a job: a service may restart.
_WAITS = 80
_NOT_REACHED = (httpx.ConnectError, httpx.ConnectTimeout)
#: The service is busy, or starting.
_LATER = (429, 502, 503, 504)


class Tries:
    """The attempts of one call. Every call may be repeated, since the service recognises it."""

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
        """Seconds until the next attempt; None where the call is answered."""
        if self._is_wait and error is not None and not isinstance(error, _NOT_REACHED):
            self._begin()  # the service responded, and ended while the call waited
        least = response.headers.get("retry-after", "") if response is not None else ""
        later = response is None or response.status_code in _LATER or least
        if not (later and self._left):
            return None
        # Jitter: all clients retry after a restart of the service.
        pause_s = self._left.pop(0) * random.uniform(0.5, 1.5)
        return max(pause_s, float(least) if least.isdigit() else 0.0)

    def answer(self, response: httpx.Response | None, error: Exception | None) -> Answer:
        """The response. Raises the error of a refusal, and RetryElsewhereError without a
        response."""
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
    """The result of a job that has ended. Raises as `calls.value_of_job`."""
    return read_result(calls.value_of_job(view), f"job {view['id'][:8]}")
