"""Every error that the training raises on purpose; the message is a paragraph fit for a person."""

from __future__ import annotations

from training_job.exit_codes import ExitCode


class TrainingError(Exception):
    """Base: one class for each cause, each with the code that the process ends with."""

    exit_code = ExitCode.UNEXPECTED


class DataError(TrainingError):
    """The manifest or a shard cannot be read, or does not hold what the manifest says."""

    exit_code = ExitCode.DATA


class UnreadableDataError(DataError):
    """Reading failed in the middle of a training; which shard and record it is about is looked for afterwards."""


class PlanError(TrainingError):
    """The data cannot be shared out equally; the message has the numbers."""

    exit_code = ExitCode.PLAN


class ModelError(TrainingError):
    """The model cannot be built as asked for, or a user's own module failed."""

    exit_code = ExitCode.MODEL


class NonFiniteLossError(TrainingError):
    """The loss became NaN or infinite."""

    exit_code = ExitCode.NON_FINITE_LOSS


class ExportError(TrainingError):
    """The exported model, loaded back, does not repeat the last evaluation."""

    exit_code = ExitCode.EXPORT


class CheckpointError(TrainingError):
    """A checkpoint is there but cannot be resumed from."""

    exit_code = ExitCode.CHECKPOINT


class RankLostError(TrainingError):
    """A rank is dead or stuck; the message names it and says what it did last."""

    exit_code = ExitCode.RANK_LOST


class RanksPartedError(TrainingError):
    """Ranks that should have the same weights have not: nothing that one of them reports can be relied on."""

    exit_code = ExitCode.RANKS_PARTED


class InterruptedTrainingError(TrainingError):
    """Somebody asked the training to stop, and it has saved where it was."""

    exit_code = ExitCode.INTERRUPTED
