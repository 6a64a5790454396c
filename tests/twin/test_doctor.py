"""`landfall doctor` on the twin: it finds what is broken, and says what the twin does not have."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cli.options import running_twin_of_this_clone
from tests.support.terminal import landfall
from tests.support.twin import TwinUnderTest

pytestmark = pytest.mark.twin


@pytest.fixture(autouse=True)
def found_by_the_command_line(twin: TwinUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the command line find the twin of these tests, which is not in the default folder."""
    base = twin.twin.places.folder.parent
    monkeypatch.setattr("cli.doctor.emulator.running_twin_of_this_clone", lambda: running_twin_of_this_clone(base))


def examined(twin: TwinUnderTest, capsys: pytest.CaptureFixture[str]) -> tuple[Any, dict[str, dict[str, Any]]]:
    """Run `landfall doctor`; return the exit status, and the checks by subject."""
    places = twin.twin.places
    status, out, err = landfall(
        capsys, "doctor", "--json", "--url", places.functions_url, "--key", places.secrets.function_key
    )
    assert not err
    return status, {check["subject"]: check for check in json.loads(out)["checks"]}


def test_a_deleted_queue_is_found_with_the_command_that_corrects_it(
    twin: TwinUnderTest, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only the queue is reported; after the fix, everything is right again, including topic and subscriptions."""
    twin.queues.delete_queue("sweep-requested")
    try:
        status, checks = examined(twin, capsys)
    finally:
        twin.queues.create_queue("sweep-requested")
    wrong = {subject: check for subject, check in checks.items() if check["state"] == "wrong"}
    assert (1, ["queue sweep-requested"]) == (status, list(wrong))
    assert "stop the twin with Ctrl-C, then: landfall up" == wrong["queue sweep-requested"]["fix"]
    status, checks = examined(twin, capsys)
    assert (0, {"ok", "absent"}) == (status, {check["state"] for check in checks.values()} | {"absent"})
    shown = ("topic", "subscription of storage", "subscription of azureml")
    assert ["ok"] * 3 == [checks[subject]["state"] for subject in shown]


def test_telemetry_that_cannot_be_written_is_found(twin: TwinUnderTest, capsys: pytest.CaptureFixture[str]) -> None:
    """The app writes one item and reads it back; here the telemetry folder is a file."""
    traces = twin.twin.places.traces
    aside = traces.with_name("traces-aside")
    traces.mkdir(exist_ok=True)
    traces.rename(aside)
    traces.write_text("", encoding="utf-8")
    try:
        status, checks = examined(twin, capsys)
    finally:
        traces.unlink()
        aside.rename(traces)
    says = f"traces cannot be written to {traces}: File exists"
    assert (1, "wrong", says) == (status, checks["one item"]["state"], checks["one item"]["says"])
    status, checks = examined(twin, capsys)
    assert (0, "ok", f"written to {traces} and read back") == (
        status,
        checks["one item"]["state"],
        checks["one item"]["says"],
    )
