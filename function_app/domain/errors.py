"""Every error that Landfall raises on purpose: one base, one class for each cause.

A message holds what was expected, what was seen and where to look next; the data are attributes.
"""

from __future__ import annotations

from shared.errors import LandfallError


class ProblemsError(LandfallError):
    """Several things are wrong at once; the message lists them all."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class SettingsError(ProblemsError):
    """App settings are missing or wrong; the message lists all of them at once."""


class PipelineError(ProblemsError):
    """Pipeline files are wrong; each line names the file, the field, what was expected and what was seen."""


class InvalidEventError(LandfallError):
    """An event or a queue message cannot be understood; trying again will not help."""


class NotFoundError(LandfallError):
    """What was asked for by name is not there."""


class VersionNotWholeError(LandfallError):
    """A training was asked for a dataset version that is not closed; the message says which shards are missing."""

    def __init__(self, message: str, *, missing: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.missing = missing


class VersionNameError(LandfallError):
    """A training was asked for without a dataset version, or with one of synthetic data, which have none."""


class VersionQuarantinedError(LandfallError):
    """A training was asked for on data that made one fail; the message names that run."""


class OverrideError(LandfallError):
    """A caller asked for more than the pipeline allows; the message names the field and its limit."""


class DocumentTooLargeError(LandfallError):
    """A document is larger than its reader allows; nothing of it is used."""


class ReplayRefusedError(LandfallError):
    """A dead letter cannot be delivered again; the message says why, and what to do instead."""


class RunEndedError(LandfallError):
    """A run was to be canceled that has ended otherwise; nothing was changed."""


class LedgerConflictError(LandfallError):
    """Somebody else changed the row first: read again, decide again."""


class IllegalTransitionError(LandfallError):
    """A run was to be moved where its state does not lead; nothing was changed."""

    def __init__(self, run_id: str, current: str, target: str) -> None:
        super().__init__(f"run {run_id}: there is no transition from {current} to {target}")
        self.run_id, self.current, self.target = run_id, current, target


class ScriptRefusedError(LandfallError):
    """A training was asked for with a script that has errors, and without force; the findings say which and where."""

    def __init__(self, message: str, *, findings: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.findings = findings


class SubmissionRefusedError(LandfallError):
    """Azure ML said no, and will say no again: the message is the service's."""


class ServiceUnavailableError(LandfallError):
    """A service did not answer, or asked to be left alone for a while: trying again later may help."""


class NotificationError(LandfallError):
    """A recipient could not be told; the notification stays in the outbox."""
