"""Each fault of the emulated Azure ML, and its handling by the adapter with the real client."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from function_app.adapters.azure_ml import OPTIONS, AzureMLJobs, WorkspaceClient
from function_app.adapters.azure_ml_pace import READS_PER_S, Pace
from function_app.domain.errors import ServiceUnavailableError, SubmissionRefusedError
from local_azure.azure_ml.faults import AnswerFault, LifeFault
from local_azure.processes import wait_until
from shared.errors import LandfallError
from tests.contract.function_app.azure_ml_benches import job_spec
from tests.support.azure_ml import AzureMl, cluster_body

pytestmark = pytest.mark.azurite


@dataclass
class FakeTime:
    """A monotonic clock that only waiting advances."""

    now_s: float = 1000.0
    waits_s: list[float] = field(default_factory=list)

    def read(self) -> float:
        """Return the time."""
        return self.now_s

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.waits_s.append(seconds)
        self.now_s += seconds


@pytest.fixture
def time() -> FakeTime:
    """The clock that paces the adapter."""
    return FakeTime()


@pytest.fixture
def jobs(workspace_client: WorkspaceClient, time: FakeTime, monkeypatch: pytest.MonkeyPatch) -> AzureMLJobs:
    """The adapter with its own pace and an SDK that does not pause, so that throttling affects no other test."""
    monkeypatch.setitem(OPTIONS, "retry_backoff_factor", 0.0)
    client = WorkspaceClient(workspace_client.workspace, "0" * 8, pace=Pace(now_s=time.read, wait=time.wait))
    return AzureMLJobs(client)


@pytest.fixture(autouse=True)
def no_faults_left(azure_ml: AzureMl) -> Iterator[None]:
    """Remove the faults that a test sets."""
    yield
    azure_ml.twin("DELETE", "faults")


def switch_on(emulator: AzureMl, fault: AnswerFault | LifeFault, job: str, times: int = 1) -> None:
    """Let a job meet a fault."""
    emulator.twin("POST", "faults", {"fault": fault, "job": job, "times": times})


TEMPORARY = {
    AnswerFault.CONFLICT: (1, r"\(409\).*Another operation"),
    AnswerFault.EXPIRED_TOKEN: (1, r"\(401\).*has expired"),
    AnswerFault.LOST_BEFORE: (4, "did not answer"),
    AnswerFault.LOST_AFTER: (4, "did not answer"),
    AnswerFault.SERVER_ERROR: (4, r"\(500\)"),
    AnswerFault.THROTTLED: (1, "answered 429 and asks to wait for 20 s"),
    AnswerFault.TRUNCATED: (1, r"answer \(201\) cannot be read"),
    AnswerFault.UNAVAILABLE: (4, r"\(503\)"),
}
"""Fault → how many of the client's own attempts meet it, and the reported error."""
FINAL = {
    AnswerFault.FORBIDDEN: ("403/AuthorizationFailed", "role on the workspace"),
    AnswerFault.NAME_TAKEN: ("400/JobPropertyImmutable", "another job has this name"),
    AnswerFault.QUOTA: ("400/UserError/ClusterCoreQuotaReached", "exceeding quota limits of Core"),
    AnswerFault.UNKNOWN_COMPUTE: ("400/UserError/BadArgument/UnknownTargetType", "has no cluster cluster. Create it"),
}
"""Fault → the codes and words of the refusal."""


def test_every_answer_is_in_one_of_the_tables() -> None:
    """Each fault is either retried or final."""
    assert set(AnswerFault) == TEMPORARY.keys() | FINAL.keys()


@pytest.mark.parametrize("fault", TEMPORARY)
def test_a_passing_fault_is_unavailable_and_the_next_submission_has_one_job(
    jobs: AzureMLJobs, azure_ml: AzureMl, time: FakeTime, fault: AnswerFault
) -> None:
    """It is unknown whether the job was created: the next attempt creates it, or finds it."""
    spec = job_spec()
    times, words = TEMPORARY[fault]
    switch_on(azure_ml, fault, spec.name, times)
    with pytest.raises(ServiceUnavailableError, match=f"submit job {spec.name}: .*{words}"):
        jobs.submit(spec)
    time.now_s += 20  # of Retry-After
    met = jobs.submit(spec)
    jobs.cancel(spec.name)
    assert (spec.name, 0) == (met.name, azure_ml.twin("GET", "faults")["pending"])


@pytest.mark.parametrize("fault", FINAL)
def test_a_final_fault_is_refused_with_the_service_s_codes(
    jobs: AzureMLJobs, azure_ml: AzureMl, fault: AnswerFault
) -> None:
    """A retry would have the same result; the codes decide the failure class."""
    spec = job_spec()
    codes, words = FINAL[fault]
    switch_on(azure_ml, fault, spec.name)
    with pytest.raises(SubmissionRefusedError, match=words) as refused:
        jobs.submit(spec)
    assert codes == refused.value.code


def test_a_token_that_has_expired_is_not_used_again(jobs: AzureMLJobs, azure_ml: AzureMl) -> None:
    """The credential caches its token for a day; only a new client requests another one."""
    spec = job_spec()
    switch_on(azure_ml, AnswerFault.EXPIRED_TOKEN, spec.name)
    outcomes = list[type[LandfallError] | None]()
    for _ in range(2):
        try:
            jobs.submit(spec)
        except LandfallError as error:
            outcomes.append(type(error))
        else:
            outcomes.append(None)
    jobs.cancel(spec.name)
    assert [ServiceUnavailableError, None] == outcomes


def test_no_request_is_sent_before_the_time_that_azure_ml_asked_to_wait_for(
    jobs: AzureMLJobs, azure_ml: AzureMl, time: FakeTime
) -> None:
    """Reads are limited separately from writes, so they continue."""
    spec = job_spec()
    switch_on(azure_ml, AnswerFault.THROTTLED, spec.name)
    for words in ("asks to wait for 20 s", "the next one is sent in 20 s"):
        with pytest.raises(ServiceUnavailableError, match=words):
            jobs.submit(spec)
    assert jobs.status(spec.name) is None
    time.now_s += 20
    jobs.submit(spec)
    jobs.cancel(spec.name)
    sent = [call["method"] for call in azure_ml.calls(spec.name) if call["method"] != "POST"]
    assert ["PUT", "GET", "PUT"] == sent


def test_a_sweep_of_many_runs_sends_five_reads_a_second(jobs: AzureMLJobs, time: FakeTime) -> None:
    """The sixth read waits until a second after the first one."""
    for number in range(2 * READS_PER_S + 1):
        jobs.status(f"landfall-none-{number}-a1")
    assert (2, 2.0) == (len(time.waits_s), sum(time.waits_s))


def test_answers_say_how_many_requests_a_caller_has_left(azure_ml: AzureMl) -> None:
    """As recorded from the service, the first read leaves 249."""
    with azure_ml.http() as http:
        secret = {"X-IDENTITY-HEADER": "secret-of-the-tests"}
        token = http.get("/msi/token?resource=x&client_id=another", headers=secret).json()["access_token"]
        path = f"{azure_ml.get('computes/cluster')['id']}"
        headers = {"Authorization": f"Bearer {token}"}
        answers = [http.get(path, headers=headers) for _ in range(2)]
    left = [int(answer.headers["x-ms-ratelimit-remaining-subscription-reads"]) for answer in answers]
    assert (249, True) == (left[0], left[1] in (248, 249))


def test_a_job_that_is_canceled_before_its_fault_has_not_met_it(jobs: AzureMLJobs, azure_ml: AzureMl) -> None:
    """It waits for the only node when it is canceled. Removing the scripts of calls keeps its fault."""
    azure_ml.put("computes/narrow", cluster_body(max_nodes=1)).raise_for_status()
    first, second = job_spec(compute="narrow"), job_spec(compute="narrow")
    jobs.submit(first)
    azure_ml.await_status(first.name, "Running")
    switch_on(azure_ml, LifeFault.PREEMPTED, second.name)
    azure_ml.twin("POST", "faults", {"match": {"path": "/none/"}, "do": {"status": 503}})
    jobs.submit(second)
    azure_ml.await_status(second.name, "Queued")
    for spec in (second, first):
        jobs.cancel(spec.name)
        azure_ml.await_status(spec.name, "Canceled")
    azure_ml.twin("DELETE", "faults?of=calls")
    left = azure_ml.twin("GET", "faults")
    assert (1, 0, []) == (left["pending"], left["calls"], [one for one in left["met"] if one["job"] == second.name])


def test_not_responding_passes(jobs: AzureMLJobs, azure_ml: AzureMl) -> None:
    """Azure ML's status is passed on unchanged, and the job continues after that time."""
    for fault, word in ((LifeFault.NOT_RESPONDING, "NotResponding"), (LifeFault.UNKNOWN_STATE, "Hibernating")):
        spec = job_spec("Completed")
        switch_on(azure_ml, fault, spec.name)
        jobs.submit(spec)
        azure_ml.await_status(spec.name, word)
        seen = jobs.status(spec.name)
        azure_ml.twin("POST", "clock", {"advance_s": 1800})
        assert (word, "Completed") == (seen and seen.status, azure_ml.await_status(spec.name))


def test_a_build_that_takes_an_hour_is_preparing(jobs: AzureMLJobs, azure_ml: AzureMl) -> None:
    """An hour of the emulator's clock."""
    spec = job_spec("Completed")
    switch_on(azure_ml, LifeFault.SLOW_BUILD, spec.name)
    jobs.submit(spec)
    azure_ml.twin("POST", "clock", {"advance_s": 3500})
    azure_ml.await_status(spec.name, "Preparing")
    azure_ml.twin("POST", "clock", {"advance_s": 100})
    assert "Completed" == azure_ml.await_status(spec.name)


def test_a_cluster_that_is_deleted_leaves_its_job_queued(jobs: AzureMLJobs, azure_ml: AzureMl) -> None:
    """It stays queued until it is canceled."""
    azure_ml.put("computes/doomed", cluster_body()).raise_for_status()
    spec = job_spec(compute="doomed")
    switch_on(azure_ml, LifeFault.COMPUTE_GONE, spec.name)
    jobs.submit(spec)
    wait_until(lambda: not jobs.has_compute("doomed"), what="the cluster to be deleted")
    assert "Queued" == azure_ml.status(spec.name)
    jobs.cancel(spec.name)
    assert "Canceled" == azure_ml.await_status(spec.name)


@pytest.mark.parametrize(
    ("fault", "codes", "words"),
    [
        (LifeFault.CAPACITY, "UserError/AllocationFailed", "do not have sufficient capacity"),
        (LifeFault.IMAGE_BUILD, "UserError/ImageBuildFailure", "Image build failed"),
        (LifeFault.PREEMPTED, "ServiceError/NodePreempted", "were preempted"),
    ],
)
def test_a_job_that_the_service_fails_says_why(
    jobs: AzureMLJobs, azure_ml: AzureMl, fault: LifeFault, codes: str, words: str
) -> None:
    """The codes and the message come from the run history."""
    spec = job_spec()
    switch_on(azure_ml, fault, spec.name)
    jobs.submit(spec)
    azure_ml.await_status(spec.name, "Failed")
    status = jobs.status(spec.name)
    assert (codes, True) == (status and status.error_code, bool(re.search(words, str(status and status.error))))


def fail(jobs: AzureMLJobs, azure_ml: AzureMl, **history: object) -> str:
    """Let a job fail and script the next answer of the run history about it; return the job's name."""
    spec = job_spec()
    switch_on(azure_ml, LifeFault.CAPACITY, spec.name)
    jobs.submit(spec)
    azure_ml.await_status(spec.name, "Failed")
    match = {"method": "GET", "path": f"/runs/{spec.name}/details"}
    azure_ml.twin("POST", "faults", {"match": match, "times": 1, "do": history})
    return spec.name


def test_a_failed_job_that_the_run_history_does_not_have_says_no_reason(jobs: AzureMLJobs, azure_ml: AzureMl) -> None:
    """The run history is another service than that of the jobs."""
    name = fail(jobs, azure_ml, status=404, code="UserError", message="no such run")
    found = [jobs.status(name) for _ in range(2)]
    assert [("Failed", None), ("Failed", "UserError/AllocationFailed")] == [
        (status and status.status, status and status.error_code) for status in found
    ]


@pytest.mark.parametrize(("status", "error"), [(401, ServiceUnavailableError), (403, SubmissionRefusedError)])
def test_a_run_history_that_does_not_answer_is_an_error_of_this_job(
    jobs: AzureMLJobs, azure_ml: AzureMl, status: int, error: type[LandfallError]
) -> None:
    """Any other exception would end the sweep of all runs. After 401 the next call gets another token."""
    name = fail(jobs, azure_ml, status=status, code="AuthorizationFailed", message="no right")
    with pytest.raises(error, match=rf"look at job {name}: .*\({status}\)"):
        jobs.status(name)
    after = jobs.status(name)
    assert "UserError/AllocationFailed" == (after and after.error_code)
