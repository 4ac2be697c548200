"""Serves one artifact over HTTP: POST an array as .npy, get the first output as .npy.

python serve.py ARTIFACT [PORT]
"""

from __future__ import annotations

import io
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np

import tunefleet
from tunefleet.errors import TunefleetError

_MOST_BYTES = 256 * 2**20


def handler_of(module: tunefleet.TunedModule) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            size = int(self.headers.get("Content-Length", 0))
            if not 0 < size <= _MOST_BYTES:
                return self._answer(413, b"send an array of at most 256 MB as .npy\n")
            try:
                array = np.load(io.BytesIO(self.rfile.read(size)), allow_pickle=False)
                output = module.run([array])[0]
            except (ValueError, TunefleetError) as error:
                return self._answer(400, f"{error}\n".encode())
            answer = io.BytesIO()
            np.save(answer, output)
            return self._answer(200, answer.getvalue())

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler


def main(artifact: str, port: str = "8000") -> None:
    with tunefleet.load(artifact) as module:
        server = ThreadingHTTPServer(("", int(port)), handler_of(module))
        print(f"{module} at http://localhost:{server.server_port}/", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
