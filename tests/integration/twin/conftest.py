"""One twin for all tests here: starting it costs ten seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.twin import TwinUnderTest, options, twin_under_test


@pytest.fixture(scope="session")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwinUnderTest]:
    """A running twin with stand-ins for trainings."""
    with twin_under_test(options(tmp_path_factory.mktemp("twin"))) as running:
        yield running


@pytest.fixture
def no_faults_left(twin: TwinUnderTest) -> Iterator[None]:
    """Undo what a test does to deliveries."""
    yield
    twin.client.end_faults()
