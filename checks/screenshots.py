"""The dashboard as a newcomer uses it, with pictures for docs/guide: sign in, drop a network, watch
it finish, fetch the artifact and compare its outputs with PyTorch's.

python checks/screenshots.py [--out docs/guide] [--minutes 1] [--looks DIR]

With --looks every page is also kept in light, dark and narrow form, for review.

Needs tunefleet[service,zoo,browser] and Chromium. Ends with 0 where all of it worked.
"""

from __future__ import annotations

import argparse
import importlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

_NETWORK = "squeezenet"
_START_S, _MOST_S = 60, 1200
_SIZE, _TALL = {"width": 1100, "height": 760}, {"width": 1100, "height": 1500}
_NARROW = {"width": 390, "height": 760}
#: For review: every page, and how it is looked at.
_PAGES = ("jobs", "submit", "devices", "records", "records/best", "cost-models", "tokens", "users")
_LOOKS = {"light": ("light", _SIZE), "dark": ("dark", _SIZE), "narrow": ("light", _NARROW)}


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n\n")[0])
    parser.add_argument("--out", type=Path, default=Path("docs/guide"), metavar="DIR")
    parser.add_argument("--minutes", type=float, default=1.0, metavar="M", help="of the search")
    parser.add_argument("--looks", type=Path, metavar="DIR", help="every page in every look")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tunefleet-screenshots-") as folder:
        home = Path(folder, "home")
        command = [sys.executable, "-m", "tunefleet", "serve", "--http", "127.0.0.1:0"]
        server = subprocess.Popen(
            [*command, "--home", str(home)], stderr=subprocess.PIPE, text=True, encoding="utf-8"
        )
        try:
            url, token = _answering(server)
            seconds = _use(url, token, Path(folder), given)
        finally:
            server.terminate()
            server.wait(60)
    print(f"from the sign-in to outputs that agree: {seconds:.0f} s")
    return 0


def _answering(server: subprocess.Popen[str]) -> tuple[str, str]:
    """Where the server answers, and its first token."""
    assert server.stderr is not None
    said, end = "", time.monotonic() + _START_S
    while time.monotonic() < end:
        said += server.stderr.readline()
        url, token = re.search(r"answering at (\S+)", said), re.search(r"tf_\S+", said)
        if url and token:
            return url[1], token[0]
    raise SystemExit(f"the service does not answer: {said}")


def _use(url: str, token: str, folder: Path, given: argparse.Namespace) -> float:
    """What a newcomer does; the seconds it took."""
    import numpy as np
    import torch

    import tunefleet
    from tunefleet.zoo import build

    network, out = build(_NETWORK), given.out
    file = folder / f"{_NETWORK}.pt2"
    torch.export.save(torch.export.export(network.module, network.example_inputs), file)
    began = time.monotonic()
    playwright: Any = importlib.import_module("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_context(base_url=url, viewport=_SIZE).new_page()
        page.set_default_timeout(30_000)
        page.goto("/")
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("link", name="Submit a network").click()
        page.get_by_label("Drop a file here").set_input_files(file)
        page.get_by_label("Search for at most").fill(str(given.minutes))
        page.set_viewport_size(_NARROW)
        page.screenshot(path=out / "dashboard-submit.png")
        page.set_viewport_size(_SIZE)
        page.get_by_role("button", name="Submit").click()
        page.wait_for_url("**/jobs/*")
        job_id = page.url.rpartition("/")[2]
        page.wait_for_selector(".plot canvas", timeout=_MOST_S * 1000)
        # The page follows the job by its events: nobody loads it again.
        page.locator(".badge", has_text="succeeded").wait_for(timeout=_MOST_S * 1000)
        page.get_by_role("heading", name="Artifact").wait_for()
        page.set_viewport_size(_TALL)
        page.screenshot(path=out / "dashboard-job.png")
        page.goto("/jobs")
        page.emulate_media(color_scheme="dark")
        page.screenshot(
            path=out / "dashboard-jobs.png", clip={"x": 0, "y": 0, **_SIZE, "height": 320}
        )
        page.goto("/records?sort=latency&ascending=true")
        page.emulate_media(color_scheme="light")
        page.set_viewport_size(_SIZE)
        page.screenshot(path=out / "dashboard-records.png")
        if given.looks:
            _review(page, given.looks, [*_PAGES, f"jobs/{job_id}"])
        browser.close()
    with tunefleet.connect(url, token) as service:
        artifact = service.fetch(service.job(job_id)["artifact"], folder)
    inputs = [tensor.numpy() for tensor in network.example_inputs]
    with tunefleet.load(artifact) as module:
        tuned = np.asarray(module(*inputs))
    with torch.no_grad():
        expected = network.module(*network.example_inputs).numpy()
    difference = float(np.abs(tuned - expected).max() / np.abs(expected).max())
    if difference > 1e-3:
        raise SystemExit(f"its outputs differ by {difference:.1e}")
    return time.monotonic() - began


def _review(page: Any, out: Path, places: list[str]) -> None:
    """Keep pages in every look."""
    out.mkdir(parents=True, exist_ok=True)
    for look, (scheme, size) in _LOOKS.items():
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size(size)
        for place in places:
            page.goto(f"/{place}")
            if place.startswith("jobs/"):
                page.wait_for_selector(".plot canvas")
            name = "job" if place.startswith("jobs/") else place.replace("/", "-")
            page.screenshot(path=out / f"{name}-{look}.png", full_page=True)


if __name__ == "__main__":
    raise SystemExit(main())
