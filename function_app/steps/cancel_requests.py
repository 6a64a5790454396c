"""Asking Azure ML for a cancellation; the run ends when the job has ended."""

from __future__ import annotations

import logging

from function_app.errors import SubmissionRefusedError
from function_app.ledger import RunRecord
from function_app.steps.services import Services

logger = logging.getLogger(__name__)


def ask_cancel(run: RunRecord, services: Services) -> None:
    """Ask once more; a job that has ended or is unknown stays as it is, and the next look will tell.

    Raises ServiceUnavailableError: whoever looks at the run next asks again.
    """
    try:
        services.jobs.cancel(run.run_id)
    except SubmissionRefusedError as error:
        logger.warning(f"run {run.run_id}: {error}", extra={"action": "cancel_refused", "run_id": run.run_id})
