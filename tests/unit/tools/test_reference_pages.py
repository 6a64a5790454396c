"""The generated pages in docs/ are fresh and complete."""

from __future__ import annotations

import subprocess
import sys

from tools.reference_pages import (
    CLI_PAGE,
    PIPELINES_PAGE,
    STATES_PAGE,
    pipeline_fields,
    pipelines_page,
    states_page,
)


def test_the_reference_of_pipeline_files_is_fresh() -> None:
    """If this fails: python -m tools.reference_pages."""
    assert pipelines_page() == PIPELINES_PAGE.read_text()


def test_the_page_of_run_states_is_fresh() -> None:
    """If this fails: python -m tools.reference_pages."""
    assert states_page() == STATES_PAGE.read_text()


def test_the_page_of_the_command_line_is_fresh() -> None:
    """If this fails: python -m tools.reference_pages.

    In a process of its own: a command that an earlier test called without its group keeps a help option without `-h`.
    """
    code = "import sys; from tools.reference_pages import cli_page; sys.stdout.write(cli_page())"
    page = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert page == CLI_PAGE.read_text()


def test_every_field_of_a_pipeline_has_a_meaning() -> None:
    """The meaning is the docstring of the field."""
    assert [] == [path for path, _, _, meaning in pipeline_fields() if not meaning]
