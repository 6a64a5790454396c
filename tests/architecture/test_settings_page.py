"""The page of app settings lists what the code reads."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_app_setting_is_documented() -> None:
    """A setting that settings.py reads, or that a binding names, has its row in docs/operations.md."""
    sources = [ROOT / "function_app" / "config" / "settings.py", ROOT / "function_app" / "functions.py"]
    read = {
        name for path in sources for name in re.findall(r"LANDFALL_[A-Z_]+[A-Z]", path.read_text(encoding="utf-8"))
    }
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8").partition("## App settings")[2]
    assert set() == read - set(re.findall(r"`(LANDFALL_[A-Z_]+)`", page))
    assert {"LANDFALL_CLAIM_LEASE_S", "LANDFALL_RECONCILE_SCHEDULE"} <= read
