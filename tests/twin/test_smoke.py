"""`landfall smoke` against the twin: real trainings on two nodes, one of which fails and one is canceled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.smoke.assertions import ASSERTIONS
from local_azure.processes import wait_until
from tests.support.processes import child_environment, start_module
from tests.support.twin import TwinUnderTest

pytestmark = [pytest.mark.twin, pytest.mark.distributed, pytest.mark.slow]

WITHIN_S = 900.0


def smoke(twin: TwinUnderTest, folder: Path) -> tuple[int | None, dict[str, Any], str]:
    """Run the command as after a deployment; return exit status, report and output."""
    places = twin.twin.places
    environment = child_environment() | twin.twin.describe()["operator"]
    environment |= {
        "LANDFALL_URL": places.functions_url,
        "LANDFALL_FUNCTION_KEY": places.secrets.function_key,
        "DataStorage": places.data_connection,
    }
    test = start_module("cli", "smoke", "--report", str(folder), log=folder / "smoke.log", environment=environment)
    try:
        wait_until(
            lambda: test.popen.poll() is not None, what="the smoke test to end", timeout_s=WITHIN_S, poll_s=0.5
        )
    finally:
        test.stop()
    return test.popen.returncode, json.loads((folder / "smoke.json").read_text()), test.output()


def test_every_assertion_holds_and_nothing_is_left(twin: TwinUnderTest, tmp_path: Path) -> None:
    """Two ranks on two nodes, a model, a failure and a cancellation; what a killed test left is removed, too."""
    twin.upload("landfall-smoke/killed", {"notes.part": b"left"})
    status, report, output = smoke(twin, tmp_path)
    outcomes = {assertion["name"]: assertion["outcome"] for assertion in report["assertions"]}
    assert (0, "passed", dict.fromkeys((assertion.name for assertion in ASSERTIONS), "passed")) == (
        status,
        report["outcome"],
        outcomes,
    ), output
    uploads = twin.blobs.get_container_client("datasets").list_blob_names(name_starts_with="landfall-smoke/")
    assert [] == list(uploads)
    removed = " ".join(report["removed"])
    assert all(text in removed for text in ("2 uploads", "model landfall-smoke version"))
    assert "left by an earlier test: 1 uploads below landfall-smoke/" in output
    assert "<h1" in (tmp_path / "smoke.html").read_text()
