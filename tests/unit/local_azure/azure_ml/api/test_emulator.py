"""Scripted faults of calls: which calls they match, and in which order."""

from __future__ import annotations

import pytest

from local_azure.azure_ml.api.answers import Fault, Faults
from local_azure.azure_ml.api.emulator import add_named_fault
from local_azure.azure_ml.api.http_api import find_route
from local_azure.azure_ml.faults import JobFaults
from local_azure.azure_ml.service import ServiceError


def test_a_script_hits_as_often_as_it_says() -> None:
    """Only matching calls count, in their order."""
    faults = Faults()
    faults.add({"match": {"method": "PUT", "path": "/JOBS/"}, "times": 2, "do": {"status": 429, "retry_after_s": 1}})
    calls = [("GET", "/jobs/a"), ("PUT", "/jobs/a"), ("PUT", "/computes/a"), ("PUT", "/jobs/b"), ("PUT", "/jobs/c")]
    assert [None, 429, None, 429, None] == [faults.next_for(*call).status for call in calls]


def test_scripts_queue_up() -> None:
    """First 503, then a dropped connection, then peace."""
    faults = Faults()
    faults.add({"do": {"status": 503}})
    faults.add({"do": {"drop": True}})
    seen = [faults.next_for("GET", "/") for _ in range(3)]
    assert [(503, False), (None, True), (None, False)] == [(fault.status, fault.drop) for fault in seen]


def test_cleared_scripts_hit_nothing() -> None:
    """A test leaves nothing to the next."""
    faults = Faults()
    faults.add({"times": 5, "do": {"drop": True}})
    faults.clear()
    assert (0, Fault()) == (faults.pending(), faults.next_for("GET", "/"))


def test_a_refusal_says_when_to_come_back() -> None:
    """Retry-After is what the client's retry policy reads."""
    refusal = Fault(status=429, retry_after_s=2).refusal()
    assert refusal is not None
    assert (429, {"Retry-After": "2"}) == (refusal.status, refusal.headers)


@pytest.mark.parametrize(
    "script", [{}, {"do": {}}, {"do": {"stats": 1}}, {"match": {"verb": "PUT"}, "do": {"drop": True}}, {"when": 1}]
)
def test_a_script_that_would_do_nothing_is_refused(script: dict[str, object]) -> None:
    """A misspelt word is an error, not silence."""
    with pytest.raises(ServiceError, match="unknown"):
        Faults().add(script)


W = "/subscriptions/s/resourcegroups/r/providers/microsoft.machinelearningservices/workspaces/w"


@pytest.mark.parametrize(
    ("method", "path", "handler"),
    [
        ("PUT", f"{W}/jobs/j", "put_job"),
        ("GET", f"{W}/jobs/", "list_jobs"),
        ("POST", f"{W}/jobs/j/cancel", "cancel_job"),
        ("GET", f"{W}/codes/c/versions", "list_versions"),
        ("POST", f"{W}/codes/c/versions/1/startPendingUpload", "start_pending_upload"),
        ("GET", f"/history/v1.0{W}/runs/r/details", "get_run_details"),
        ("GET", "/msi/token", "get_token"),
    ],
)
def test_paths_find_their_handlers(method: str, path: str, handler: str) -> None:
    """Case does not matter, as in ARM."""
    assert handler == find_route(method, path)[0].handler.__name__


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/", 404), ("DELETE", f"{W}/jobs/j", 405)])
def test_other_paths_are_refused(method: str, path: str, status: int) -> None:
    """Absent paths and unsupported methods have a status each."""
    with pytest.raises(ServiceError) as refused:
        find_route(method, path)
    assert status == refused.value.status


@pytest.mark.parametrize("path", ["/twin/calls", "/twin/faults", "/msi/token", "/discovery"])
def test_only_what_must_be_is_open(path: str) -> None:
    """Everything else needs a token."""
    assert (True, False) == (find_route("GET", path)[0].open, find_route("GET", f"{W}/jobs")[0].open)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ({"fault": "no_gpus"}, r"one_rank.*one_node.*no_gpu.*throttled"),
        ({"fault": ""}, "throttled"),
        ({"fault": "no_gpu", "jobs": "x"}, "besides fault there are job and times"),
        ({"fault": "no_gpu", "times": "often"}, "times must be a number"),
    ],
)
def test_an_unknown_fault_is_refused(script: dict[str, str], words: str) -> None:
    """The refusal lists the known ones."""
    faults = JobFaults()
    with pytest.raises(ServiceError, match=words):
        add_named_fault(faults, script)
    assert 0 == faults.pending()
