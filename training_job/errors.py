"""Every error that the training raises on purpose; the message is a paragraph fit for a person."""

from __future__ import annotations

from training_job.exit_codes import ExitCode


class TrainingError(Exception):
    """Base: one class for each cause, each with the code that the process ends with."""

    exit_code = ExitCode.UNEXPECTED


class DataError(TrainingError):
    """The manifest or a shard cannot be read, or does not hold what the manifest says."""

    exit_code = ExitCode.DATA


class PlanError(TrainingError):
    """The data cannot be shared out equally; the message has the numbers."""

    exit_code = ExitCode.PLAN


class ModelError(TrainingError):
    """The model cannot be built as asked for; the message names what there is."""

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
