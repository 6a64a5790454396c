"""Packing ends with a pipeline file: in tests, in a folder of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.init import command


@pytest.fixture(autouse=True)
def pipelines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The default folder of pipelines, which does not exist until a test creates it."""
    folder = tmp_path / "pipelines"
    monkeypatch.setattr(command, "PIPELINES", folder)
    return folder
