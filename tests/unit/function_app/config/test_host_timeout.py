"""The budget of a validation against what the Functions host allows an execution."""

from __future__ import annotations

from pathlib import Path

import pytest

from function_app.config.settings import DEFAULT_BUDGET_S, PATIENCE, TIMEOUT_OVERRIDE, check_budget
from function_app.domain.errors import SettingsError


def host_file(tmp_path: Path, text: str) -> Path:
    """Write a host.json."""
    path = tmp_path / "host.json"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("timeout", "budget_s"),
    [
        ('"00:30:00"', 1350),
        ('"00:05:00"', 225),
        ('"1.00:00:00"', 64_800),
        ('"-1"', 999_999),
        ("null", 1350),
    ],
)
def test_three_quarters_of_an_execution(tmp_path: Path, timeout: str, budget_s: int) -> None:
    """So much is allowed and no second more, but where there is no limit."""
    path = host_file(tmp_path, f'{{"functionTimeout": {timeout}}}')
    check_budget(budget_s, {}, path)
    if timeout != '"-1"':
        with pytest.raises(SettingsError, match=f"must be at most {budget_s}, .* host.json .* got {budget_s + 1}$"):
            check_budget(budget_s + 1, {}, path)


def test_a_setting_goes_before_the_file(tmp_path: Path) -> None:
    """As the Functions host has it."""
    path = host_file(tmp_path, '{"functionTimeout": "00:30:00"}')
    with pytest.raises(SettingsError, match=r"must be at most 450, .* the 600 s that AzureFunctionsJobHost__f"):
        check_budget(1200, {TIMEOUT_OVERRIDE: "00:10:00"}, path)


def test_without_a_file_the_default_counts(tmp_path: Path) -> None:
    """Half an hour on Flex Consumption."""
    with pytest.raises(SettingsError, match="the 1800 s that"):
        check_budget(1351, {}, tmp_path / "host.json")


@pytest.mark.parametrize("text", ["?", "[]", '{"functionTimeout": "30 minutes"}', '{"functionTimeout": 30}'])
def test_a_file_that_is_not_understood_is_named(tmp_path: Path, text: str) -> None:
    """With what should be in it."""
    with pytest.raises(SettingsError, match=r"host.json (cannot be read|must be a time)"):
        check_budget(60, {}, host_file(tmp_path, text))


def test_what_is_shipped_fits() -> None:
    """The default budget, and what cannot be paused, fit into the execution that host.json of this clone allows."""
    check_budget(DEFAULT_BUDGET_S, {})
    assert PATIENCE * 0.75 < 1
