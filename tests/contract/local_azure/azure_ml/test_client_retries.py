"""Scripted faults hit the real client, whose retries find the same job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.local_azure.azure_ml.test_client_jobs import a_job, submit
from tests.support.azure_ml import WORKSPACE_ID, AzureMl, real_client

if TYPE_CHECKING:
    from azure.ai.ml import MLClient

pytestmark = [pytest.mark.azurite, pytest.mark.xdist_group("azure_ml")]


def statuses_of_puts(emulator: AzureMl, name: str) -> list[int]:
    """Status of every PUT of a job, 0 for a dropped connection."""
    return [call["status"] for call in emulator.calls(f"/jobs/{name}") if call["method"] == "PUT"]


@pytest.mark.parametrize(
    ("name", "do", "expected"),
    [
        ("throttled", {"status": 429, "retry_after_s": 1}, [429, 201]),
        ("unavailable", {"status": 503}, [503, 201]),
        ("dropped", {"drop": True}, [0, 201]),
        ("answer-lost", {"drop_after": True}, [0, 200]),
    ],
)
def test_a_fault_is_retried_into_one_job(
    client: MLClient, emulator: AzureMl, name: str, do: dict[str, Any], expected: list[int]
) -> None:
    """The client repeats the PUT; status 200 instead of 201 shows that the first one took effect."""
    emulator.twin("POST", "faults", {"match": {"method": "PUT", "path": f"/jobs/{name}"}, "do": do})
    submit(client, a_job(name=name))
    assert (expected, 0) == (statuses_of_puts(emulator, name), emulator.twin("GET", "faults")["pending"])


def test_an_answer_that_comes_too_late_leaves_a_job(emulator: AzureMl) -> None:
    """The caller cannot know the outcome of a time-out: here the job exists although the client gave up."""
    from azure.core.exceptions import ServiceResponseError

    script = {"match": {"method": "PUT", "path": "/jobs/too-late"}, "do": {"delay_after_s": 40}}
    emulator.twin("POST", "faults", script)
    with real_client(emulator, read_timeout=8, retry_total=0) as hasty, pytest.raises(ServiceResponseError):
        submit(hasty, a_job(name="too-late"))
    assert "Completed" == emulator.await_status("too-late")


def test_a_scripted_refusal_may_carry_inner_codes(emulator: AzureMl) -> None:
    """Any answer of the service can be scripted, including the body."""
    do = {"status": 400, "code": "UserError", "message": "no quota", "inner": ["BadArgument", "QuotaExceeded"]}
    emulator.twin("POST", "faults", {"match": {"path": "/computes/cluster"}, "do": do})
    error = emulator.ask("GET", f"{WORKSPACE_ID}/computes/cluster").json()["error"]
    inner = error["additionalInfo"][0]["info"]["value"]["innerError"]["code"]
    assert ("UserError", "no quota", "QuotaExceeded") == (error["code"], error["message"], inner)


def test_a_script_with_a_word_that_is_not_known_is_refused(emulator: AzureMl) -> None:
    """Otherwise a misspelt fault would silently do nothing."""
    with emulator.http() as http:
        answer = http.post("/twin/faults", json={"match": {"method": "PUT"}, "do": {"stattus": 429}})
    assert (400, True) == (answer.status_code, "stattus" in answer.text)
