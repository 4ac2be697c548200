"""Every page in a browser: in light, dark and narrow, without an error of its console, and without
what axe-core finds serious."""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip(
    "fastapi", reason="the service is not installed: pip install tunefleet[service]"
)
pytest.importorskip("playwright.sync_api", reason="pip install tunefleet[browser]")
pytest.importorskip("axe_playwright_python", reason="pip install tunefleet[browser]")

from tunefleet.core.events import Forecasted, Note
from tunefleet.core.forecast import Quantiles, SearchForecast
from tunefleet.service.app import ServiceSettings
from tunefleet.service.running import HttpService, Listening
from tunefleet.store import open_store

from ..networks import write_small
from .conftest import World
from .test_costmodels import learned
from .test_pages import ended, searched
from .test_records import measured

playwright: Any = importlib.import_module("playwright.sync_api")
axe: Any = importlib.import_module("axe_playwright_python.sync_playwright")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: apt-get install chromium"),
]

#: It stays here: no updates, no other services.
ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
WIDE, NARROW = {"width": 1280, "height": 800}, {"width": 380, "height": 800}
LOOKS = {"light": ("light", WIDE), "dark": ("dark", WIDE), "narrow": ("light", NARROW)}
SERIOUS = ("serious", "critical")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield found
        found.close()


@pytest.fixture
def service(world: World) -> Iterator[HttpService]:
    with HttpService(world.home, Listening(port=0), ServiceSettings(), lambda ids: None) as http:
        yield http


class Tab:
    """A page of the browser; what its console and its requests say that is wrong."""

    def __init__(self, browser: Any, url: str, look: str = "light") -> None:
        scheme, size = LOOKS[look]
        self._context = browser.new_context(color_scheme=scheme, viewport=size, base_url=url)
        self._context.set_default_timeout(10_000)
        self.page = self._context.new_page()
        self.faults: list[str] = []
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("request", self._asked)
        self._url = url

    def _said(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.faults.append(message.text)

    def _asked(self, request: Any) -> None:
        if not request.url.startswith((self._url, "blob:", "data:")):
            self.faults.append(f"asks {request.url}")

    def sign_in(self, token: str) -> None:
        self.page.goto("/jobs")
        self.page.get_by_label("Token").fill(token)
        self.page.keyboard.press("Enter")
        self.page.get_by_role("heading", name="Jobs").wait_for()

    def close(self) -> None:
        self._context.close()


def serious_of(page: Any) -> list[str]:
    """What axe-core finds serious, with the elements."""
    found = axe.Axe().run(page).response["violations"]
    return [
        f"{each['id']}: {node['html'][:200]}"
        for each in found
        if each["impact"] in SERIOUS
        for node in each["nodes"]
    ]


def token_of(headers: dict[str, str]) -> str:
    return headers["Authorization"].removeprefix("Bearer ")


@pytest.mark.parametrize("look", LOOKS)
def test_every_page_is_shown(world: World, service: HttpService, browser: Any, look: str) -> None:
    root = world.user("root", admin=True)
    world.user("ann")
    job_ids = [ended(world, root), searched(world, root)]
    latency_s = Quantiles(100e-6, 150e-6, 200e-6)
    of = SearchForecast(40, 11.0, 230e-6, 400, 30.0, latency_s, (), 9)
    world.store.events.append(job_ids[1], 1e9, [Forecasted(of)])
    jobs = [f"/jobs/{job_id}" for job_id in job_ids]
    measured(world, "root", "resnet", {"a": 2e-3, "b": 1e-3})
    learned(world, "root")
    others = ["/jobs", "/submit", "/devices", "/records", "/records/best", "/cost-models"]
    others += ["/records?sort=latency&network=res", "/tokens", "/users", "/jobs/000000"]
    with closing(Tab(browser, service.url, look)) as tab:
        tab.page.goto("/signin")
        assert serious_of(tab.page) == []
        tab.sign_in(token_of(root))
        for place in [*others, *jobs, f"/compare?job={job_ids[0]}&job={job_ids[1]}"]:
            tab.page.goto(place)
            if place in jobs or place.startswith("/compare"):
                tab.page.wait_for_selector(".plot canvas")
            for details in tab.page.locator("details").all():
                details.locator("summary").click()
            assert serious_of(tab.page) == [], place
            wide = tab.page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0, f"{place} is {wide} pixels too wide"
        faults = [text for text in tab.faults if "404" not in text]
        assert faults == []


def test_a_job_is_paused_by_keys_and_its_page_follows(
    world: World, service: HttpService, browser: Any
) -> None:
    ann = world.user("ann")
    job_id = searched(world, ann)
    with closing(Tab(browser, service.url)) as tab:
        tab.sign_in(token_of(ann))
        tab.page.get_by_role("link", name="tiny_cnn").focus()
        tab.page.keyboard.press("Enter")
        tab.page.wait_for_selector(".plot canvas")
        pause = tab.page.get_by_role("button", name="Pause")
        pause.focus()
        tab.page.keyboard.press("Enter")
        tab.page.get_by_role("button", name="Resume").wait_for()
        assert tab.page.locator(".badge").first.inner_text() == "paused"
        tab.page.get_by_text("The curve as a table").click()
        # An event of the job, which the page is told of without asking.
        world.store.events.append(job_id, 1e9, [Note("told by its stream")])
        tab.page.get_by_text("told by its stream").wait_for()
        assert tab.page.locator(".plot canvas").count() == 1
        assert tab.page.get_by_role(
            "cell", name="230 µs"
        ).is_visible()  # what was opened stays open
        assert tab.faults == []


@pytest.mark.tvm
@pytest.mark.frameworks
@pytest.mark.timeout(400)
def test_a_file_is_sent_in_parts_and_goes_on_after_a_cut(
    world: World, service: HttpService, browser: Any, tmp_path: Path
) -> None:
    ann = world.user("ann")
    file = write_small(tmp_path / "net.onnx", channels=900)  # 97 kB
    with closing(Tab(browser, service.url)) as tab:
        tab.sign_in(token_of(ann))
        tab.page.route("**/submit.js", _in_small_parts)
        cut = iter([False, True])
        tab.page.route(
            "**/v1/uploads/*",
            lambda route: route.abort() if next(cut, False) else route.continue_(),
        )
        tab.page.goto("/submit")
        tab.page.get_by_label("Drop a file here").set_input_files(file)
        tab.page.get_by_role("radio", name="at most").check()
        tab.page.get_by_label("milliseconds at most").fill("3.5")
        tab.page.get_by_role("button", name="Submit").click()
        tab.page.get_by_text("checking the file").wait_for()
        tab.page.wait_for_url("**/jobs/*", timeout=200_000)
        assert "at most 3.5 ms for an inference" in tab.page.inner_text("main")
        assert [text for text in tab.faults if "ERR_FAILED" not in text] == []
        assert next(cut, None) is None
    with closing(open_store(world.home)) as store:
        [network] = store.holdings.networks("ann")
        [job] = store.jobs.page(tenant="ann")
        assert (world.home / network.place).read_bytes() == file.read_bytes()
        assert job.spec.agreement.latency_ms == 3.5


def _in_small_parts(route: Any) -> None:
    response = route.fetch()
    text = response.text().replace("PART_BYTES = 8 << 20", "PART_BYTES = 40000")
    assert "40000" in text
    route.fulfill(response=response, body=text)


def test_both_ways_to_a_digest_agree(world: World, service: HttpService, browser: Any) -> None:
    with closing(Tab(browser, service.url)) as tab:
        tab.page.goto("/signin")
        tab.page.add_script_tag(url="/static/sha256.js")
        answers = tab.page.evaluate(
            """async () => Promise.all([0, 1, 55, 56, 64, 119, 1000, 100001].map(async (size) => {
                const bytes = new Uint8Array(size).map((_, at) => at * 7);
                const state = new Sha256();
                for (let at = 0; at < size; at += 37) state.add(bytes.subarray(at, at + 37));
                return [await sha256Of(new Blob([bytes]), () => {}), state.end()];
            }))"""
        )
        assert all(one == other and len(one) == 64 for one, other in answers)


def test_records_are_filtered_and_sorted(world: World, service: HttpService, browser: Any) -> None:
    ann = world.user("ann")
    measured(world, "ann", "resnet", {f"c{n:02d}": 1e-3 * (60 - n) for n in range(60)})
    measured(world, "ann", "bert", {"other": 1e-6})
    with closing(Tab(browser, service.url)) as tab:
        tab.sign_in(token_of(ann))
        tab.page.get_by_role("link", name="Records").click()
        tab.page.get_by_label("Network").fill("res")
        tab.page.get_by_role("button", name="Filter").click()
        tab.page.get_by_role("link", name="latency").click()
        assert tab.page.url.endswith("/records?network=res&sort=latency&ascending=true")
        cell = tab.page.locator("tbody tr").first.locator("td").nth(6)
        assert cell.inner_text() == "1.00 ms"
        tab.page.get_by_role("link", name="Next page").click()
        assert cell.inner_text() == "51.0 ms"
        assert tab.page.locator("tbody tr").count() == 10
        tab.page.get_by_role("link", name="latency").click()
        assert cell.inner_text() == "60.0 ms"
        with tab.page.expect_download() as download:
            tab.page.get_by_role("link", name="As CSV").click()
        lines = Path(download.value.path()).read_text(encoding="utf-8").splitlines()
        assert len(lines) == 61
        assert tab.faults == []


def test_a_token_is_shown_once(world: World, service: HttpService, browser: Any) -> None:
    root = world.user("root", admin=True)
    with closing(Tab(browser, service.url)) as tab:
        tab.sign_in(token_of(root))
        tab.page.goto("/users")
        tab.page.get_by_label("Name").fill("ann")
        tab.page.get_by_role("button", name="Add").click()
        tab.page.get_by_role("link", name="ann").click()
        tab.page.get_by_label("What it is for").fill("ci")
        tab.page.get_by_role("button", name="Create").click()
        tab.page.get_by_text("it is not shown again").wait_for()
        text = tab.page.locator("output").inner_text()
        bearer = {"Authorization": f"Bearer {text}"}
        asked = tab.page.request
        assert asked.get("/v1/me", headers=bearer).json()["name"] == "ann"
        tab.page.reload()
        assert text not in tab.page.content()
        tab.page.on("dialog", lambda dialog: dialog.accept())
        tab.page.get_by_role("button", name="End the token").click()
        tab.page.get_by_role("button", name="End the token").wait_for(state="detached")
        assert asked.get("/v1/me", headers=bearer).status == 401
        assert tab.faults == []
