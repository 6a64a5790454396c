"""What groups of commands say of their commands."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from cli.main import landfall


@pytest.mark.parametrize("group", ["pack", "dead-letters"])
def test_an_overview_says_whole_sentences(group: str) -> None:
    """Nothing is cut off at the edge of a usual terminal."""
    said = CliRunner().invoke(landfall, [group, "--help"], terminal_width=80).output
    listed = [line for line in said.partition("Commands:\n")[2].splitlines() if line]
    assert ([], True) == ([line for line in listed if not line.endswith(".") or line.endswith("..")], bool(listed))
