"""`make demo`, watched in a browser: from nothing to a registered model, without a reload by hand."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from local_azure.processes import Process, wait_until
from tests.support.browser import Watched
from tests.support.processes import child_environment, start_module
from tests.support.twin import require_twin_parts

pytestmark = [pytest.mark.browser, pytest.mark.twin, pytest.mark.distributed, pytest.mark.slow]

WITHIN_S = 400.0


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Process]:
    """A demo that keeps its twin."""
    require_twin_parts()
    running = start_module(
        "cli", "demo", "--keep", "--folder", str(tmp_path), log=tmp_path / "demo.log", environment=child_environment()
    )
    yield running
    if running.popen.poll() is None:  # a test that failed meanwhile has left it standing still
        os.kill(running.popen.pid, signal.SIGCONT)
    running.stop()


def address(demo: Process) -> str:
    """Return the address of the pages, which the demo prints."""

    def printed() -> str | None:
        found = re.search(r"pages +(http://\S+)", demo.output())
        if found is None and demo.popen.poll() is not None:
            raise AssertionError(demo.output())
        return found[1] if found else None

    return wait_until(printed, what="the demo to print the address of its pages", timeout_s=WITHIN_S, poll_s=0.1)


def test_a_person_watches_the_demo_from_empty_to_registered(browser: Browser, demo: Process) -> None:
    """The overview, the version and the run follow by themselves; axe and the console have nothing to say."""
    with browser.new_context() as context:
        watched = Watched(context)
        page = watched.page
        pages = address(demo)
        os.kill(demo.popen.pid, signal.SIGSTOP)  # the services go on; nothing is uploaded before the page was seen
        page.goto(pages)
        expect(page.get_by_text("No shard has been uploaded yet.")).to_be_visible()
        expect(page.get_by_text("No run is active.")).to_be_visible()
        watched.look("demo-empty")
        page.evaluate("window.isEmpty = true")
        os.kill(demo.popen.pid, signal.SIGCONT)
        expect(page.get_by_role("region", name="Runs that train or wait")).to_be_visible()
        assert page.evaluate("window.isEmpty"), "the page was loaded again as a whole"
        page.get_by_role("region", name="Runs that train or wait").get_by_role("link", name="landfall-").click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("landfall-digits-")
        page.evaluate("window.isFirst = true")
        expect(page.get_by_role("img", name="Loss over epochs")).to_be_visible()
        watched.look("demo-trains")
        expect(page.locator("dd .state.registered")).to_be_visible()
        expect(page.get_by_text("digits-cnn version")).to_be_visible()
        assert page.evaluate("window.isFirst"), "the page was loaded again as a whole"
        watched.look("demo-run")
        page.get_by_role("link", name="digits/").click()
        expect(page.get_by_text("8 accepted", exact=True)).to_be_visible()
        expect(page.get_by_text("2 accepted", exact=True)).to_be_visible()
        watched.look("demo-version")
        page.get_by_role("link", name="Overview").click()
        expect(page.get_by_text("Nothing needs a person.")).to_be_visible()
        expect(page.get_by_role("link", name="registered: landfall-digits-")).to_be_visible()
        watched.look("demo-end")
