"""Pages that are generated: fresh, and without a field that nobody explains."""

from __future__ import annotations

from tools import pipelines_page


def test_the_reference_of_pipelines_is_what_the_models_say() -> None:
    """Where this fails: python -m tools.pipelines_page."""
    assert pipelines_page.page() == pipelines_page.PAGE.read_text()


def test_every_field_of_a_pipeline_has_a_meaning() -> None:
    """A docstring beside the field, or an entry of WORDS."""
    assert [] == [path for path, _, _, meaning in pipelines_page.fields() if not meaning]


def test_no_words_are_left_of_fields_that_are_gone() -> None:
    """What is explained is there."""
    assert set() == set(pipelines_page.WORDS) - {path for path, *_ in pipelines_page.fields()}
