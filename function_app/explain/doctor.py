"""The app's part of `landfall doctor`: whether it can reach everything that it needs with its own identity."""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from function_app.domain.checks import ONE_ITEM, AbsentHereError, Check, CheckState, Probe
from function_app.services import Services
from function_app.telemetry import Span
from shared import SPOKEN, mismatch, spoken_by
from shared.errors import LandfallError
from shared.safe_text import mask_secrets, one_line
from shared.traces import Place

logger = logging.getLogger(__name__)

WITHIN_S = 45.0
"""The command line waits 60 s for an answer."""
AT_ONCE = 8
MAX_SAYS_CHARS = 1000
_ADDRESS = re.compile(r"notify: (?!LANDFALL_NOTIFICATION_TOPIC_ENDPOINT)([A-Z][A-Z0-9_]*) (is not set)?")
"""A problem with the app setting that holds a recipient's address."""
TWIN_FIX = "stop the twin with Ctrl-C, then: landfall up"


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """The app's results, and the names that the remaining checks in Azure need."""

    at: datetime
    """The app's clock."""
    in_azure: bool
    subscription_id: str
    resource_group: str
    workspace: str
    environment_id: str
    code_id: str
    telemetry_trace: str
    """Trace id of the item of telemetry that was sent for these checks."""
    checks: tuple[Check, ...]


def examine(services: Services, *, within_s: float = WITHIN_S) -> Diagnosis:
    """Run all checks at the same time; one that does not end in time is unknown."""
    place = Place(trace_id=secrets.token_hex(16), span_id=secrets.token_hex(8))
    item = Probe(part="telemetry", subject=ONE_ITEM, look=partial(_one_item, services, place))
    probes = [*services.probes, *_probes(services), item]
    pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="doctor")
    begin = pool.submit  # a call by this name would be taken for one of JobService
    futures = [begin(_examined, probe, services) for probe in probes]
    wait(futures, within_s)
    pool.shutdown(wait=False, cancel_futures=True)  # a call that hangs ends by its own time-out
    workspace = services.workspace
    return Diagnosis(
        at=services.clock(),
        in_azure=services.in_azure,
        subscription_id=workspace.subscription_id,
        resource_group=workspace.resource_group,
        workspace=workspace.name,
        environment_id=workspace.environment_id,
        code_id=workspace.code_id,
        telemetry_trace=place.trace_id,
        checks=tuple(_outcome(probe, future, within_s) for probe, future in zip(probes, futures, strict=True)),
    )


def _outcome(probe: Probe, future: Future[Check], within_s: float) -> Check:
    if future.done() and not future.cancelled():
        return future.result()
    says = f"there was no answer within {within_s:.0f} s"
    return Check(part=probe.part, subject=probe.subject, state=CheckState.UNKNOWN, says=says, fix="landfall doctor")


def _examined(probe: Probe, services: Services) -> Check:
    state, fix = CheckState.OK, ""
    try:
        says = probe.look()
    except AbsentHereError as error:
        state, says = CheckState.ABSENT, str(error)
    except LandfallError as error:
        state, says, fix = CheckState.WRONG, str(error), _fix(probe, services)
    except Exception as error:
        logger.exception(f"doctor: {probe.subject}", extra={"action": "check_failed"})
        state, says, fix = CheckState.WRONG, f"an unexpected error: {error!r}", _fix(probe, services)
    says = one_line(mask_secrets(" ".join(says.split())))[:MAX_SAYS_CHARS]
    return Check(part=probe.part, subject=probe.subject, state=state, says=says, fix=fix)


def _fix(probe: Probe, services: Services) -> str:
    return probe.fix if services.in_azure else TWIN_FIX


def _probes(services: Services) -> Iterator[Probe]:
    """Yield the checks that need no more than the flows' own ports."""
    look = partial(_contract, services.workspace.code_id)
    yield Probe(part="versions", subject="job contract", look=look, fix="azd up")
    yield Probe(part="workspace", subject=services.workspace.name, look=partial(_workspace, services))

    for dataset, problems in sorted(services.out_of_service.items()):
        look = partial(_out_of_service, problems)
        yield Probe(
            part="pipelines", subject=dataset or "a file without its dataset", look=look, fix=_pipeline_fix(problems)
        )
    for cluster, pipelines in sorted(_clusters(services).items()):
        look = partial(_cluster, cluster, pipelines, services)
        yield Probe(part="clusters", subject=cluster, look=look, fix="azd up")
    fix = "landfall reconcile, which sends them again"
    yield Probe(part="notifications", subject="outbox", look=partial(_unsent, services), fix=fix)


def _out_of_service(problems: Sequence[str]) -> str:
    raise LandfallError("; ".join(problems))


def _pipeline_fix(problems: Sequence[str]) -> str:
    """Return what helps a pipeline that is out of service: most often the address of a recipient is missing."""
    if found := _ADDRESS.search(" ".join(problems)):
        setting, is_missing = found.groups()
        vault, group, app = (
            f'"$(azd env get-value LANDFALL_{part})"' for part in ("VAULT", "RESOURCE_GROUP", "FUNCTION_APP")
        )
        secret = f"az keyvault secret set --vault-name {vault} --name {setting.replace('_', '-')} --value URL"
        restart = f"az functionapp restart --resource-group {group} --name {app}"
        add = f"add {setting} to the list LANDFALL_WEBHOOKS with `azd env set`, then: azd provision && "
        return f"{add if is_missing else ''}{secret} && {restart}"
    if any("LANDFALL_CODE_ID" in problem for problem in problems):
        return "azd up"
    return "correct the file until `landfall check` finds nothing, then: azd up"


def _clusters(services: Services) -> dict[str, list[str]]:
    """Return the clusters that pipelines name, with the names of these."""
    found: dict[str, list[str]] = {}
    for pipeline in services.pipelines.values():
        for cluster in (pipeline.train.cluster, *pipeline.attempts.other_clusters):
            found.setdefault(cluster, []).append(pipeline.pipeline)
    return found


def _cluster(cluster: str, pipelines: Sequence[str], services: Services) -> str:
    if not services.jobs.has_compute(cluster):
        raise LandfallError(f"the workspace does not have it; it is used by {', '.join(sorted(pipelines))}")
    return f"the workspace has it; it is used by {', '.join(sorted(pipelines))}"


def _unsent(services: Services) -> str:
    failed = [one for one in services.ledger.unsent_notifications() if one.last_error]
    if failed:
        recipients, error = ", ".join(sorted({one.recipient for one in failed})), failed[-1].last_error
        raise LandfallError(f"{len(failed)} could not be sent to {recipients}, the last one because: {error}")
    return "all notifications were sent"


def _one_item(services: Services, place: Place) -> str:
    """Send a span in a trace of its own."""
    if services.telemetry_sink is None:
        raise AbsentHereError("no telemetry is sent, because no setting has a destination")
    now = services.clock()
    return services.telemetry_sink.deliver(
        Span(name="doctor", place=place, parent=None, started_at=now, ended_at=now)
    )


def _contract(code_id: str) -> str:
    if problem := mismatch(code_id):
        raise LandfallError(problem)
    app, code = (".".join(map(str, spoken)) for spoken in (SPOKEN, spoken_by(code_id)))
    return (
        f"the function app supports version {app}, the training's code {code_id.rpartition('/')[2]} supports {code}"
    )


def _workspace(services: Services) -> str:
    return f"the app may read its jobs; the newest page lists {len(services.jobs.ours())}"
