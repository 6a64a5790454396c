"""One twin for all tests of a worker: each test uses its own datasets and removes the faults that it set."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.support.twin import PIPELINES, TwinUnderTest, options, twin_under_test
from tests.twin.own_pipelines import (
    write_busy_pipelines,
    write_launched_pipelines,
    write_own_pipelines,
    write_smoke_pipeline,
    write_swept_pipeline,
    write_trained_pipeline,
)


@pytest.fixture(scope="session")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwinUnderTest]:
    """A running twin with stand-ins for trainings, and two pipelines with real scripts."""
    folder = tmp_path_factory.mktemp("twin")
    pipelines = folder / "pipelines"
    shutil.copytree(PIPELINES, pipelines)
    write_own_pipelines(pipelines)
    write_busy_pipelines(pipelines)
    write_launched_pipelines(pipelines)
    write_trained_pipeline(pipelines)
    write_smoke_pipeline(pipelines)
    write_swept_pipeline(pipelines)
    with twin_under_test(options(folder, pipelines=pipelines)) as running:
        yield running


@pytest.fixture
def no_faults_left(twin: TwinUnderTest) -> Iterator[None]:
    """Remove the delivery faults that a test set."""
    yield
    twin.client.end_faults()
