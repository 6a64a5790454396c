"""A browser for tests (Debian's chromium under Playwright) and the checks that each page must pass."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Route, expect, sync_playwright

from tests.support.processes import REPOSITORY

AXE = REPOSITORY / "node_modules" / "axe-core" / "axe.min.js"
SCREENSHOTS = REPOSITORY / ".landfall" / "screenshots"
WIDTHS = (375, 768, 1280)
"""Widths of a phone, a tablet and a desktop window."""
PATIENCE_MS = 400_000
"""Longest wait in ms: a training within the demo on a busy machine."""
ADDRESS = "http://127.0.0.1:7071"

Answer = Callable[[str], httpx.Response]
"""Returns the page at a path."""


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start chromium and stop it with its event loop; skip the test where chromium is not installed."""
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("needs chromium: apt-get install --no-install-recommends chromium")
    if not AXE.exists():
        pytest.skip("needs axe-core: run `make setup`")
    # Chromium's own sandbox does not run as root, and all pages that are opened here are our own.
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=options)
        try:
            yield started
        finally:
            started.close()


class Watched:
    """A page and the errors that the browser reported for it."""

    def __init__(self, context: BrowserContext) -> None:
        self.page: Page = context.new_page()
        self.complaints: list[str] = []
        self.page.set_default_timeout(PATIENCE_MS)
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def check(self) -> None:
        """Fail if axe has findings, if the page is wider than its window, or if the browser reported errors."""
        assert [] == self.complaints
        found = violations(self.page)
        assert not found, "\n".join(found)
        wide = self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert 0 == wide, f"{self.page.url} is {wide} pixels wider than its window"

    def look(self, name: str) -> None:
        """Check the page at three widths, light and dark, and keep a screenshot of each width."""
        for width in WIDTHS:
            self.page.set_viewport_size({"width": width, "height": 900})
            for scheme in ("dark", "light"):
                self.page.emulate_media(color_scheme=scheme)
                self.check()
            self.page.screenshot(path=SCREENSHOTS / f"{name}-{width}.png", full_page=True)


def violations(page: Page) -> list[str]:
    """Return the findings of axe, with the elements."""
    page.evaluate(_axe())
    found: list[dict[str, Any]] = page.evaluate("axe.run().then((result) => result.violations)")
    return [f"{one['id']}: {one['help']}: {[node['html'][:200] for node in one['nodes'][:3]]}" for one in found]


@cache
def _axe() -> str:
    return AXE.read_text(encoding="utf-8")


@contextmanager
def served(browser: Browser, answer: Answer, **options: Any) -> Iterator[Watched]:
    """Open a browser in which a function answers requests to ``ADDRESS``; all other requests fail.

    Where the function raises httpx.ReadError, the connection ends without an answer.

    The function runs in a thread of its own, because Playwright's event loop runs in this one.
    """
    with ThreadPoolExecutor(1) as thread, browser.new_context(**options) as context:

        def fulfil(route: Route) -> None:
            path = route.request.url.removeprefix(ADDRESS)
            if path == route.request.url:
                route.abort()
                return
            try:
                made = thread.submit(answer, path).result()
            except httpx.ReadError:
                route.abort("connectionreset")
                return
            route.fulfill(status=made.status_code, headers=dict(made.headers), body=made.content)

        context.route("**/*", fulfil)
        yield Watched(context)
