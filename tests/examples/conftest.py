"""One twin with the example pipelines for all tests here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.examples.overlays import write_overlaid
from tests.support.twin import TwinUnderTest, options, twin_under_test


@pytest.fixture(scope="session")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwinUnderTest]:
    """A running twin that trains with TensorFlow and Horovod, two ranks under mpirun."""
    base = tmp_path_factory.mktemp("examples")
    with twin_under_test(options(base / "twin", pipelines=write_overlaid(base / "pipelines"))) as running:
        yield running
