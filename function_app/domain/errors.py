"""The errors of the function app: one class for each cause, all derived from LandfallError.

A message names the thing, the problem and the fix; data that a handler needs are attributes.
"""

from __future__ import annotations

from shared.errors import LandfallError
from shared.safe_text import mask_addresses, one_line


class ProblemsError(LandfallError):
    """Several problems at once; the message lists them all, one per line.

    Only the host of a URL is shown, because the paths and queries of webhooks are secrets.
    """

    def __init__(self, *problems: str) -> None:
        self.problems = tuple(one_line(mask_addresses(problem)) for problem in problems)
        super().__init__("\n".join(self.problems))


class SettingsError(ProblemsError):
    """App settings are missing or wrong; the message lists all of them."""


class PipelineError(ProblemsError):
    """Pipeline files are wrong; each line names the file, the field, the problem and the fix."""


class PipelineOutOfServiceError(LandfallError):
    """The pipeline of a requested dataset cannot be used; the message lists the problems of its file."""


class InvalidEventError(LandfallError):
    """An event or queue message cannot be understood; another delivery would fail the same way."""


class NotFoundError(LandfallError):
    """No object has the requested name."""


class VersionNotWholeError(LandfallError):
    """A run was requested on an incomplete dataset version; the message lists the missing shards."""

    def __init__(self, message: str, *, missing: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.missing = missing


class VersionNameError(LandfallError):
    """A run was requested without a dataset version, or with one although the pipeline uses synthetic data."""


class VersionQuarantinedError(LandfallError):
    """A run was requested on data that are on hold because they broke an earlier run, which the message names."""


class OverrideError(LandfallError):
    """An override is not allowed by the pipeline; the message names the field and its limit."""

    def __init__(self, name: str, problem: str = "") -> None:
        super().__init__(f"{name[:100]}{problem}")
        self.name = name
        self.member = "overrides"
        """The member of the request that has it."""


class OptionSweepError(LandfallError):
    """An option sweep is too large, or its runs do not differ; nothing was planned."""


class IdempotencyKeyError(LandfallError):
    """An idempotency key was already used for another request; nothing was changed."""


class ChangedMeanwhileError(LandfallError):
    """A resource does not match the caller's If-Match; nothing was done."""


class DocumentTooLargeError(LandfallError):
    """A document is larger than its reader allows; it is not used."""


class ReplayRefusedError(LandfallError):
    """A dead letter cannot be replayed; the message says why, and what to do instead."""


class TooSoonError(LandfallError):
    """A test message was just sent to the recipients of a pipeline; wait and try again."""


class RunEndedError(LandfallError):
    """A cancellation was requested for a run that has already ended; nothing was changed."""


class NotRegistrableError(LandfallError):
    """A person requested to register a model, but the run has none or its data are unknown; nothing was done."""


class LedgerConflictError(LandfallError):
    """Another writer changed the row first; the caller must read it and decide again."""


class IllegalTransitionError(LandfallError):
    """The run's state does not allow the requested transition; nothing was changed."""

    def __init__(self, run_id: str, current: str, target: str) -> None:
        super().__init__(f"run {run_id}: there is no transition from {current} to {target}")
        self.run_id, self.current, self.target = run_id, current, target


class ScriptRefusedError(LandfallError):
    """A run was requested without force although its script has errors, which the findings list."""

    def __init__(self, message: str, *, findings: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.findings = findings


class ConfigurationError(LandfallError):
    """A run was requested although its pipeline's options do not fit the data; the problems name each option."""

    def __init__(self, message: str, *, problems: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.problems = problems


class SubmissionRefusedError(LandfallError):
    """Azure ML refused the submission permanently; the message is the service's.

    ``code`` is its HTTP status with its error codes, outermost first: ``400/UserError/BadArgument``.
    """

    def __init__(self, message: str, *, code: str = "") -> None:
        super().__init__(message)
        self.code = code


class ServiceUnavailableError(LandfallError):
    """A service did not respond or is throttling; trying again later may help."""


class LogUnreadableError(LandfallError):
    """A job's log cannot be read; the message says why and what to do."""


class MetricsUnreadableError(LandfallError):
    """The metrics of a job's MLflow run cannot be read; the message says why and what to do."""


class NotificationError(LandfallError):
    """A notification could not be delivered; it stays in the outbox."""
