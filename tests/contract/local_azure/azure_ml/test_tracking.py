"""The emulator's MLflow API: what a job's ranks can use, and what is refused. Another test covers the app's reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from local_azure.processes import wait_until
from tests.support.azure_ml import WORKSPACE_ID, AzureMl, mpi_job

pytestmark = [pytest.mark.azurite, pytest.mark.distributed, pytest.mark.xdist_group("azure_ml")]

API = f"/mlflow/v2.0{WORKSPACE_ID}/api/2.0/mlflow"
LOOKS = (
    "import json, os, time, urllib.request as u; "
    "e = os.environ; "
    "url = e['MLFLOW_TRACKING_URI'] + '/api/2.0/mlflow/runs/get?run_id=' + e['MLFLOW_RUN_ID']; "
    "r = u.Request(url, headers={'Authorization': 'Bearer ' + e['MLFLOW_TRACKING_TOKEN']}); "
    "run = json.load(u.urlopen(r, timeout=60))['run']['info']; "
    "print(json.dumps([run['run_id'], run['experiment_id'] == e['MLFLOW_EXPERIMENT_ID'], "
    "e['MLFLOW_EXPERIMENT_NAME'], e['MLFLOW_TRACKING_TOKEN']]), flush=True); "
    "time.sleep(600)"
)
METRIC = {"key": "loss", "value": 0.5, "timestamp": 1, "step": 0}


def said(emulator: AzureMl, rank: int) -> list[str]:
    """Return the output of a rank once it has finished its check."""
    log = emulator.state / "runs" / "tracking" / "logs" / "user_logs" / f"std_log_process_{rank:02d}.txt"
    text = wait_until(
        lambda: log.read_text() if log.exists() and log.read_text().endswith("]\n") else None,
        what=f"rank {rank} to have looked",
        timeout_s=120,
    )
    words: list[str] = httpx.Response(200, text=text).json()
    return words


@pytest.fixture(scope="module")
def token(emulator: AzureMl) -> Iterator[str]:
    """Return the token of a job on two nodes, each of which has reached its run."""
    variables = {"MLFLOW_RUN_ID": "another", "MLFLOW_TRACKING_URI": "https://another"}
    body = mpi_job(f'python -c "{LOOKS}"', environmentVariables=variables, experimentName="tried")
    emulator.put("jobs/tracking", body).raise_for_status()
    first, second = said(emulator, 0), said(emulator, 1)
    assert [first, first[:3]] == [second, ["tracking", True, "tried"]], "the service's variables win over the job's"
    yield first[3]
    emulator.ask("POST", f"{WORKSPACE_ID}/jobs/tracking/cancel")
    emulator.await_status("tracking", "Canceled")


def call(emulator: AzureMl, token: str | None, method: str, path: str, body: Any = None) -> httpx.Response:
    """Return the answer to one call."""
    with emulator.http() as http:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return http.request(method, path, json=body, headers=headers)


def batch(**members: Any) -> dict[str, Any]:
    """Return a batch for the job's run."""
    return {"run_id": "tracking", **members}


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("log-metric", {**METRIC, "value": "high"}, "must be a number"),
        ("log-metric", {**METRIC, "value": True}, "must be a number"),
        ("log-metric", {**METRIC, "step": "first"}, "its step must be a number"),
        ("log-metric", {**METRIC, "timestamp": None}, "must have a timestamp"),
        ("log-metric", {**METRIC, "key": "a" * 251}, "1 to 250 letters"),
        ("log-metric", {**METRIC, "key": "a\nb"}, "1 to 250 letters"),
        ("log-batch", {"metrics": [METRIC] * 1001}, "1000 metrics at most"),
        ("log-batch", {"metrics": [METRIC] * 950, "tags": [{"key": "a", "value": "b"}] * 51}, "1000 metrics, params"),
        ("log-batch", {"metrics": [{**METRIC, "key": f"m{i}"} for i in range(51)]}, "50 metrics at most"),
        ("log-batch", {"metrics": "loss"}, "as a list"),
        ("log-batch", {"params": [{"key": "a", "value": "b" * 501}]}, "500 characters at most"),
        ("log-batch", {"params": [{"key": "a", "value": "1"}, {"key": "a", "value": "2"}]}, "cannot be changed"),
        ("log-batch", {"tags": ["a"]}, "1 to 250 letters"),
    ],
)
def test_what_mlflow_refuses_is_refused(
    emulator: AzureMl, token: str, path: str, body: dict[str, Any], words: str
) -> None:
    """The limits are those of MLflow and Azure ML; nothing of a refused call is stored."""
    answer = call(emulator, token, "POST", f"{API}/runs/{path}", batch(**body))
    assert (400, True) == (answer.status_code, words in answer.text), answer.text
    kept = call(emulator, token, "GET", f"{API}/runs/get?run_id=tracking").json()["run"]["data"]
    assert {"metrics": [], "params": [], "tags": []} == kept


def test_a_job_s_token_opens_its_own_run_only(emulator: AzureMl, token: str) -> None:
    """It opens no other run and nothing else of the workspace; an app can read, others can do nothing."""
    own, other = f"{API}/runs/get?run_id=tracking", f"{API}/runs/get?run_id=another"
    tag = f"{API}/runs/set-tag"
    asked: list[tuple[str | None, str, str, Any]] = [
        (token, "GET", own, None),
        (emulator.token(), "GET", own, None),
        (None, "GET", own, None),
        (token, "GET", other, None),
        (emulator.token(), "GET", other, None),
        (token, "POST", tag, {"run_id": "another", "key": "a", "value": "b"}),
        (emulator.token(), "POST", tag, batch(key="a", value="b")),
        (token, "PUT", f"{API}-artifacts/artifacts/another/a.txt", {}),
        (token, "PUT", f"{API}-artifacts/artifacts/tracking/%2e%2e/a.txt", {}),
        (token, "GET", f"{WORKSPACE_ID}/jobs/tracking", None),
        (token, "POST", f"{API}/runs/create", {}),
    ]
    expected = [200, 200, 401, 403, 404, 403, 403, 403, 400, 401, 404]
    assert expected == [call(emulator, *each).status_code for each in asked]
