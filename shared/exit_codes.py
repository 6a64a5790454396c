"""Exit codes of a training's processes: the training exits with them, the submitter classifies failures by them.

mpirun ends with the code of the first rank that failed, which therefore makes MPI end the others. If a rank was
killed, the MPI of another one may end the job first, with 14.
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """All codes of the training. Its log explains the code for the particular run."""

    SUCCESS = 0
    UNEXPECTED = 1
    """The training has a defect; the log has the stack trace."""
    USAGE = 2
    """The command line is wrong (argparse's own code)."""
    DATA = 10
    """The manifest or a shard cannot be read, or a shard's content contradicts the manifest."""
    PLAN = 11
    """The data cannot be divided equally among the ranks with this batch size."""
    MODEL = 12
    """The model cannot be built as requested, or a user's own module failed."""
    NON_FINITE_LOSS = 13
    """The loss became NaN or infinite; the log names the step."""
    EXPORT = 14
    """The exported model behaves differently from the trained one."""
    RANK_LOST = 15
    """A rank is dead or stuck; the log names it."""
    CHECKPOINT = 16
    """A checkpoint exists, but the training cannot resume from it."""
    RANKS_PARTED = 17
    """Ranks that should have equal weights differ."""
    DATA_CHANGED = 18
    """A shard's content differs from the accepted content; the log names the shard."""
    CONFIGURATION = 19
    """The options of the pipeline do not fit the data or the training; nothing is wrong with the data."""
    MISSING_RESOURCES = 20
    """Fewer ranks or nodes started than the job requested, or a rank has no GPU; the log has the counts."""
    OUTPUT = 21
    """An output of the job could not be written or read; the log names the file."""
    INTERRUPTED = 75
    """SIGTERM or SIGUSR1: the step was finished and a checkpoint saved; the next attempt continues (EX_TEMPFAIL)."""
