"""One browser for each module: while Playwright runs, no other event loop can run in its thread."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.support.browser import chromium


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium; the test is skipped where there is none."""
    with chromium() as started:
        yield started
