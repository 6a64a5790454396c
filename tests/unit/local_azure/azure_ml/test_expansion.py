"""Filling a job's command."""

from __future__ import annotations

import pytest

from local_azure.azure_ml.spec import expand, unknown_placeholders


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("train ${{inputs.data}}", "train /in"),
        ("train ${{ inputs.data }} ${{outputs.model}}/x", "train /in /out/x"),
        ("echo $HOME ${SHELL} {{inputs.data}}", "echo $HOME ${SHELL} {{inputs.data}}"),
        ("a ${{inputs.data}} ${{inputs.data}}", "a /in /in"),
    ],
)
def test_placeholders_are_replaced_and_nothing_else(command: str, expected: str) -> None:
    """The shell's own variables stay for the shell."""
    assert expected == expand(command, {"data": "/in"}, {"model": "/out"})


@pytest.mark.parametrize(
    ("command", "unknown"),
    [
        ("echo ${{inputs.data}}", []),
        ("echo ${{inputs.other}}", ["${{inputs.other}}"]),
        ("echo ${{outputs.data}} ${{search_space.x}}", ["${{outputs.data}}", "${{search_space.x}}"]),
    ],
)
def test_placeholders_that_nothing_fills_are_named(command: str, unknown: list[str]) -> None:
    """In the order in which the command has them."""
    assert unknown == unknown_placeholders(command, {"data"}, {"model"})
