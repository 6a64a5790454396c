"""How a training's processes end. mpirun ends with the code of the first rank that failed."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """The whole list; the log says in words what a code means for the run at hand."""

    SUCCESS = 0
    UNEXPECTED = 1
    """A defect; the log has the stack trace."""
    USAGE = 2
    """The command line is wrong (argparse's own code)."""
    DATA = 10
    """The manifest or a shard cannot be read, or does not hold what the manifest says."""
    PLAN = 11
    """The data cannot be shared out equally over this many ranks at this batch size."""
    MODEL = 12
    """The model cannot be built as asked for, or a user's own module failed."""
    NON_FINITE_LOSS = 13
    """The loss became NaN or infinite; the log says at which step."""
    EXPORT = 14
    """What was exported does not behave as what was trained."""
    RANK_LOST = 15
    """A rank is dead or stuck; the log names it."""
    CHECKPOINT = 16
    """A checkpoint is there but cannot be resumed from."""
    RANKS_PARTED = 17
    """Ranks that should have the same weights have not."""
    INTERRUPTED = 75
    """SIGTERM or SIGUSR1: the step was finished, a checkpoint saved; another attempt goes on there (EX_TEMPFAIL)."""
