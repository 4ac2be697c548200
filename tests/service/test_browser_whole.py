"""A newcomer's way through the dashboard: sign in, drop a file, watch it finish, fetch and run what
was made of it; with nothing on the way that axe-core finds serious."""

from __future__ import annotations

import base64
import json
import re
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip(
    "fastapi", reason="the service is not installed: pip install tunefleet[service]"
)
pytest.importorskip("playwright.sync_api", reason="pip install tunefleet[browser]")
pytest.importorskip("axe_playwright_python", reason="pip install tunefleet[browser]")

from tunefleet import load
from tunefleet.cli.app import run

from ..networks import write_small
from .test_browser import CHROMIUM, Tab, browser, serious_of
from .test_whole import service

__all__ = ["browser", "service"]
pytestmark = [
    pytest.mark.tvm,
    pytest.mark.frameworks,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: apt-get install chromium"),
]
#: Milliseconds that a search of a few seconds, with its import and verification, may take here.
MOST_MS = 600_000
DROP = """([name, content]) => {
    const bytes = Uint8Array.from(atob(content), (each) => each.charCodeAt(0));
    const given = new DataTransfer();
    given.items.add(new File([bytes], name));
    const event = new DragEvent("drop", { dataTransfer: given, bubbles: true, cancelable: true });
    document.querySelector(".drop").dispatchEvent(event);
}"""


def relu_of_convolution(path: Path, x: Any) -> Any:
    """What the small network computes."""
    import onnx
    from onnx import numpy_helper

    [weights] = onnx.load(str(path)).graph.initializer
    w, padded = numpy_helper.to_array(weights), np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    parts = [
        np.einsum("nchw,oc->nohw", padded[:, :, i : i + 16, j : j + 16], w[:, :, i, j])
        for i in range(3)
        for j in range(3)
    ]
    return np.maximum(sum(parts), 0)


def test_a_file_is_dropped_tuned_fetched_and_run(
    service: tuple[str, str],
    browser: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    url, token = service
    network = write_small(tmp_path / "small.onnx")
    with closing(Tab(browser, url)) as tab:
        page = tab.page
        tab.sign_in(token)
        assert serious_of(page) == []
        page.get_by_role("link", name="Submit a network").click()
        page.wait_for_url("**/submit")
        assert "Nothing is under way." in page.inner_text("main")
        page.evaluate(DROP, [network.name, base64.b64encode(network.read_bytes()).decode()])
        page.get_by_label("Search for at most").fill("0.1")
        assert serious_of(page) == []
        page.get_by_role("button", name="Submit").click()
        page.wait_for_url("**/jobs/*")
        # The page follows the job by its events: nobody loads it again.
        page.locator(".badge", has_text="succeeded").wait_for(timeout=MOST_MS)
        page.get_by_role("heading", name="Artifact").wait_for()
        page.get_by_text("The curve as a table").click()
        assert serious_of(page) == []
        page.locator("details", has_text=" files").locator("summary").click()
        with page.expect_download() as download:
            page.get_by_role("link", name="artifact.json").click()
        [command] = re.findall(r"tunefleet fetch (\w+)", page.inner_text("main"))
        card = json.loads(Path(download.value.path()).read_text(encoding="utf-8"))
        for place in ("/records", "/records/best", "/devices", "/cost-models", "/jobs"):
            page.goto(place)
            assert serious_of(page) == [], place
        assert page.locator("tbody tr").count() == 1
        page.goto("/records?sort=latency&ascending=true")
        assert page.locator("tbody tr").count() > 3
        assert tab.faults == []
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "token").write_text(token, encoding="utf-8")
    assert run(["login", url, "--token-file", str(tmp_path / "token")]) == 0
    capsys.readouterr()
    assert run(["fetch", command, "--out", str(tmp_path)]) == 0
    folder = Path(capsys.readouterr().out.strip())
    assert json.loads((folder / "artifact.json").read_text(encoding="utf-8")) == card
    x = np.random.default_rng(2).standard_normal((1, 3, 16, 16), np.float32)
    with load(folder) as module:
        [output] = module.run([x])
    np.testing.assert_allclose(output, relu_of_convolution(network, x), atol=1e-4)
