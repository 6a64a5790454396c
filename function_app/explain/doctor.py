"""What `landfall doctor` asks the app: whether it can reach, with its own identity, all that it needs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from function_app.domain.checks import AbsentHereError, Check, CheckState, Probe
from function_app.services import Services
from shared.contract import SPOKEN, mismatch, spoken_by
from shared.errors import LandfallError
from shared.safe_text import mask_secrets, one_line

logger = logging.getLogger(__name__)

WITHIN_S = 45.0
"""The command line waits 60 s for an answer."""
AT_ONCE = 8
MAX_SAYS_CHARS = 1000
TWIN_FIX = "stop the twin with Ctrl-C, then: landfall up"


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """What the app found, and the names by which Azure can be asked for the rest."""

    at: datetime
    """The app's clock."""
    in_azure: bool
    subscription_id: str
    resource_group: str
    workspace: str
    environment_id: str
    code_id: str
    checks: tuple[Check, ...]


def examine(services: Services, *, within_s: float = WITHIN_S) -> Diagnosis:
    """Make all checks at the same time; one that has not ended in time is unknown."""
    probes = [*services.probes, *_probes(services)]
    pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="doctor")
    futures = [pool.submit(_examined, probe, services) for probe in probes]
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


def _contract(code_id: str) -> str:
    if problem := mismatch(code_id):
        raise LandfallError(problem)
    app, code = (".".join(map(str, spoken)) for spoken in (SPOKEN, spoken_by(code_id)))
    return f"the function app speaks version {app}, the training's code {code_id.rpartition('/')[2]} speaks {code}"


def _workspace(services: Services) -> str:
    return f"the app may read its jobs; the newest page lists {len(services.jobs.ours())}"
