"""What the emulator refuses as the service does; the log of calls names the caller."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.azure_ml import WORKSPACE_ID, AzureMl, command_job, real_client

pytestmark = [pytest.mark.azurite, pytest.mark.xdist_group("azure_ml")]


def refusal(emulator: AzureMl, path: str, body: Any) -> tuple[int, str]:
    """Return status and message of a refused PUT."""
    answer = emulator.put(path, body)
    return answer.status_code, answer.json().get("error", {}).get("message", "")


def test_an_unknown_member_is_refused(emulator: AzureMl) -> None:
    """The message names the member, the type that lacks it and its path."""
    body = command_job("echo", outputs={"model": {"jobOutputType": "custom_model", "assetVersion": "1"}})
    expected = (
        "The request is invalid. Could not find member 'assetVersion' on object of type 'AssetJobOutput'. "
        "Path 'properties.outputs.model.assetVersion'."
    )
    assert (400, expected) == refusal(emulator, "jobs/unknown-member", body)


@pytest.mark.parametrize("name", ["-starts-with-dash", "a" * 256, "with.dot"])
def test_a_job_name_outside_the_rule_is_refused(emulator: AzureMl, name: str) -> None:
    """The client does not check names, but the service does."""
    status, message = refusal(emulator, f"jobs/{name}", command_job("echo"))
    assert (400, True) == (status, "is invalid" in message)


@pytest.mark.parametrize("name", ["ab", "gpu-1", "1gpu"])
def test_a_compute_name_outside_the_rule_is_refused(emulator: AzureMl, name: str) -> None:
    """Names that are too short, start with a digit, or have a number after the last dash."""
    status, message = refusal(emulator, f"computes/{name}", emulator.get("computes/cluster") and _cluster())
    assert (400, True) == (status, "is invalid" in message)


def _cluster() -> dict[str, Any]:
    scale = {"maxNodeCount": 1}
    return {"properties": {"computeType": "AmlCompute", "properties": {"scaleSettings": scale}}}


@pytest.mark.parametrize(
    ("member", "word"),
    [("environmentId", "environment"), ("codeId", "code")],
)
def test_a_reference_to_nothing_is_refused(emulator: AzureMl, member: str, word: str) -> None:
    """The environment and the code of a job must exist."""
    ghost = f"{WORKSPACE_ID}/{word}s/ghost"
    status, message = refusal(emulator, f"jobs/refers-to-no-{word}", command_job("echo", **{member: ghost}))
    assert (400, f"Could not find {word} {ghost}.") == (status, message)


def test_an_unknown_compute_is_refused_without_its_name(emulator: AzureMl) -> None:
    """As recorded from the service, the codes say what is wrong, but nothing names the compute."""
    body = command_job("echo", computeId=f"{WORKSPACE_ID}/computes/ghost")
    error = emulator.put("jobs/refers-to-no-compute", body).json()["error"]
    inner = error["additionalInfo"][0]["info"]["value"]
    assert ("UserError", "Unknown compute target.", "BadArgument", "UnknownTargetType") == (
        error["code"],
        error["message"],
        inner["code"],
        inner["innerError"]["code"],
    )


def test_a_placeholder_without_input_is_refused(emulator: AzureMl) -> None:
    """A reference to a missing input is found at submission."""
    status, message = refusal(emulator, "jobs/placeholder", command_job("echo ${{inputs.data}}"))
    assert (400, True) == (status, "${{inputs.data}}" in message)


@pytest.mark.parametrize("authorization", [None, "Bearer made-up", "Basic eDp5"])
def test_a_call_without_a_token_of_ours_is_refused(emulator: AzureMl, authorization: str | None) -> None:
    """The status is 401, for any other value of the header."""
    headers = {} if authorization is None else {"Authorization": authorization}
    with emulator.http() as http:
        assert 401 == http.get(f"{WORKSPACE_ID}/jobs", headers=headers).status_code


def test_the_identity_endpoint_wants_its_header(emulator: AzureMl) -> None:
    """Only callers that know the header's secret get a token."""
    with emulator.http() as http:
        assert 401 == http.get("/msi/token?resource=x", headers={"X-IDENTITY-HEADER": "guess"}).status_code


def test_callers_are_distinguished(emulator: AzureMl) -> None:
    """The log of calls has the client id of a user-assigned identity, but no token."""
    with real_client(emulator, client_id="11111111-2222-3333-4444-555555555555") as client:
        list(client.jobs.list())
    call = emulator.calls()[-1]
    assert ("11111111-2222-3333-4444-555555555555", "GET", 200) == (call["caller"], call["method"], call["status"])
    assert {"t", "method", "path", "query", "status", "caller", "user_agent"} == set(call)


def test_a_path_that_is_not_there_is_a_404(emulator: AzureMl) -> None:
    """Unsupported resources are reported as missing."""
    assert 404 == emulator.ask("GET", f"{WORKSPACE_ID}/onlineEndpoints").status_code


def test_an_unsupported_method_is_a_405(emulator: AzureMl) -> None:
    """Jobs cannot be deleted here."""
    assert 405 == emulator.ask("DELETE", f"{WORKSPACE_ID}/jobs/any").status_code


def test_a_body_that_is_not_json_is_refused(emulator: AzureMl) -> None:
    """The message is the parser's."""
    with emulator.http() as http:
        headers = {"Authorization": f"Bearer {emulator.token()}"}
        answer = http.put(f"{WORKSPACE_ID}/jobs/no-json", content=b"{", headers=headers)
    assert (400, True) == (answer.status_code, "not JSON" in answer.text)
