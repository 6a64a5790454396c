"""Errors that the training raises on purpose; each message is a paragraph for a person to read."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from pathlib import Path
from typing import NoReturn

from shared.exit_codes import ExitCode

ROOT_PRINTS_FIRST_S = 3.0
"""How long other ranks wait before they print an error: if the root has the same one, mpirun ends them meanwhile."""
FORWARDING_S = 0.5
"""Time that mpirun needs to forward a line; it may lose the last line of a process that ends at once (observed)."""

ABORT_WITHIN_S = 10.0
"""How long MPI may take to end all ranks; it takes a second."""


class TrainingError(Exception):
    """Base class: one subclass for each cause, each with the exit code of the process."""

    exit_code = ExitCode.UNEXPECTED


class DataError(TrainingError):
    """The manifest or a shard cannot be read, or its content differs from the manifest."""

    exit_code = ExitCode.DATA


class ConfigurationError(TrainingError):
    """The options do not fit the data or the training; the message begins with the option to change."""

    exit_code = ExitCode.CONFIGURATION


class UnreadableDataError(DataError):
    """Reading failed in the middle of a training; the damaged shard and record are searched for afterwards."""


class DataChangedError(TrainingError):
    """A shard is not the one that was accepted: its content, or its size, differs from the manifest."""

    exit_code = ExitCode.DATA_CHANGED


class PlanError(TrainingError):
    """The data cannot be divided equally among the ranks; the message has the numbers."""

    exit_code = ExitCode.PLAN


class ModelError(TrainingError):
    """The model cannot be built as requested, or a user's own module failed."""

    exit_code = ExitCode.MODEL


class NonFiniteLossError(TrainingError):
    """The loss became NaN or infinite."""

    exit_code = ExitCode.NON_FINITE_LOSS


class ExportError(TrainingError):
    """The exported model, loaded back, does not reproduce the last evaluation."""

    exit_code = ExitCode.EXPORT


class CheckpointError(TrainingError):
    """A checkpoint exists but cannot be resumed from."""

    exit_code = ExitCode.CHECKPOINT


class RankLostError(TrainingError):
    """A rank is dead or stuck; the message names it and its last activity."""

    exit_code = ExitCode.RANK_LOST


class RanksPartedError(TrainingError):
    """Ranks that should have equal weights differ, so nothing that any of them reports can be relied on."""

    exit_code = ExitCode.RANKS_PARTED


class MissingResourcesError(TrainingError):
    """Fewer ranks or nodes than the job asked for, or a rank without a GPU; the message has the counts."""

    exit_code = ExitCode.MISSING_RESOURCES


class InterruptedTrainingError(TrainingError):
    """The training was asked to stop and has saved a checkpoint."""

    exit_code = ExitCode.INTERRUPTED


def print_error(error: Exception, rank: int) -> None:
    """Print the error's paragraph, once for all ranks that have the same error."""
    if rank:
        time.sleep(ROOT_PRINTS_FIRST_S)
    sys.stdout.flush()
    print(f"training failed (rank {rank}): {error}", file=sys.stderr, flush=True)
    time.sleep(FORWARDING_S)


def end_job(code: int) -> NoReturn:
    """End this process at once, and all other ranks with this exit code.

    An orderly exit would wait for ranks that still expect this one. A rank that only exits closes its connections,
    and MPI on another rank may report that first, with an exit code of its own that says nothing of the cause.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    ending = threading.Thread(target=_abort_all_ranks, args=(code,), daemon=True)
    ending.start()
    ending.join(ABORT_WITHIN_S)
    os._exit(code)


def _abort_all_ranks(code: int) -> None:
    """Have Open MPI end all ranks, where it is in use; with another MPI, do nothing."""
    if int(os.environ.get("OMPI_COMM_WORLD_SIZE", "1")) == 1:
        return
    mapped = (line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/libmpi.so" in line)
    if (path := next(mapped, None)) is None:
        return
    library, begun, ended = ctypes.CDLL(path), ctypes.c_int(), ctypes.c_int()
    library.MPI_Initialized(ctypes.byref(begun))
    library.MPI_Finalized(ctypes.byref(ended))
    if begun.value and not ended.value and hasattr(library, "ompi_mpi_comm_world"):
        library.MPI_Abort(ctypes.byref(ctypes.c_char.in_dll(library, "ompi_mpi_comm_world")), code)
