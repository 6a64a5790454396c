"""Failure classes of attempts, the table that derives them from evidence, and the remedy of each class.

The evidence is Azure ML's status, its error code and message, and the end of the root's log; the first rule that
matches decides. Exit codes are those of ``shared/exit_codes.py`` and of POSIX.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from shared.exit_codes import ExitCode


class FailureClass(StrEnum):
    """Why an attempt failed."""

    PREEMPTED = "preempted"
    NO_CAPACITY = "no_capacity"
    IMAGE_BUILD = "image_build"
    PACKAGES = "packages"
    CONTAINER = "container"
    OUT_OF_MEMORY = "out_of_memory"
    COMMUNICATION = "communication"
    MISSING_RESOURCES = "missing_resources"
    ARGUMENTS = "arguments"
    MISSING_FILE = "missing_file"
    DATA = "data"
    CONFIGURATION = "configuration"
    DATA_CHANGED = "data_changed"
    USER_CODE = "user_code"
    TIMEOUT = "timeout"
    CANCELED = "canceled"
    UNKNOWN = "unknown"


class Remedy(StrEnum):
    """The remedy for a failure."""

    RESUME = "resume"
    """Another attempt resumes from the last checkpoint."""
    WAIT = "wait"
    """Another attempt resumes after a pause."""
    SMALLER_BATCH = "smaller_batch"
    """Half the batch of each process and twice the batches per step, so that the global batch size stays the same."""
    OTHER_SIZE = "other_size"
    """Another attempt resumes on the next cluster in the pipeline's list."""
    QUARANTINE = "quarantine"
    """Stop, and put the data on hold: only a forced run trains on them again."""
    STOP = "stop"


RETRYING = frozenset({Remedy.RESUME, Remedy.WAIT, Remedy.SMALLER_BATCH, Remedy.OTHER_SIZE})
"""Remedies that start another attempt."""

CORRECTABLE = frozenset(
    {
        FailureClass.PACKAGES,
        FailureClass.CONTAINER,
        FailureClass.MISSING_RESOURCES,
        FailureClass.ARGUMENTS,
        FailureClass.MISSING_FILE,
        FailureClass.CONFIGURATION,
        FailureClass.DATA_CHANGED,
    }
)
"""Failures after which repeating the same request may succeed."""

REMEDIES: Mapping[FailureClass, Remedy] = {
    FailureClass.PREEMPTED: Remedy.RESUME,
    FailureClass.NO_CAPACITY: Remedy.OTHER_SIZE,
    FailureClass.IMAGE_BUILD: Remedy.STOP,
    FailureClass.PACKAGES: Remedy.STOP,
    FailureClass.CONTAINER: Remedy.STOP,
    FailureClass.OUT_OF_MEMORY: Remedy.SMALLER_BATCH,
    FailureClass.COMMUNICATION: Remedy.RESUME,
    FailureClass.MISSING_RESOURCES: Remedy.STOP,
    FailureClass.ARGUMENTS: Remedy.STOP,
    FailureClass.MISSING_FILE: Remedy.STOP,
    FailureClass.DATA: Remedy.QUARANTINE,
    FailureClass.CONFIGURATION: Remedy.STOP,
    FailureClass.DATA_CHANGED: Remedy.STOP,
    FailureClass.USER_CODE: Remedy.STOP,
    FailureClass.TIMEOUT: Remedy.STOP,
    FailureClass.CANCELED: Remedy.STOP,
    FailureClass.UNKNOWN: Remedy.STOP,
}
"""Defaults, which a pipeline may override. ``runs/attempts.py`` replaces an impossible remedy by the next best."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The evidence of how a job ended."""

    status: str
    """Azure ML's status: ``Failed`` or ``Canceled``."""
    error_code: str = ""
    """Azure ML's error codes, outermost first: ``UserError/ExecutionFailed``."""
    error: str = ""
    log_tail: str = ""
    log_problem: str = ""
    """Why the log could not be read; empty if it was, or if there is none."""
    ran_s: float = 0.0
    timeout_s: float = float("inf")


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A failure class, and the evidence for it."""

    failure_class: FailureClass
    evidence: str
    fix: str = ""
    """The fix, if the evidence is more specific than the class."""


EXIT_CODES: Mapping[int, tuple[FailureClass, str]] = {
    ExitCode.USAGE: (FailureClass.USER_CODE, "the command line is wrong"),
    ExitCode.DATA: (FailureClass.DATA, "the data differ from the manifest"),
    ExitCode.CONFIGURATION: (FailureClass.CONFIGURATION, "the options of the pipeline do not fit the data"),
    ExitCode.PLAN: (
        FailureClass.CONFIGURATION,
        "there are too few data for this batch size and number of ranks",
    ),
    ExitCode.MODEL: (FailureClass.USER_CODE, "the model cannot be built"),
    ExitCode.NON_FINITE_LOSS: (FailureClass.USER_CODE, "the loss became NaN or infinite"),
    ExitCode.EXPORT: (FailureClass.USER_CODE, "the exported model is not the trained one"),
    ExitCode.RANK_LOST: (FailureClass.COMMUNICATION, "a rank is dead or stuck"),
    ExitCode.CHECKPOINT: (FailureClass.USER_CODE, "training cannot resume from the checkpoint"),
    ExitCode.RANKS_PARTED: (FailureClass.COMMUNICATION, "ranks have parted"),
    ExitCode.DATA_CHANGED: (FailureClass.DATA_CHANGED, "a shard was replaced after it had been accepted"),
    ExitCode.MISSING_RESOURCES: (
        FailureClass.MISSING_RESOURCES,
        "fewer ranks or nodes than requested, or a rank without a GPU",
    ),
    ExitCode.OUTPUT: (FailureClass.COMMUNICATION, "the storage of the job's outputs refused a file"),
    ExitCode.INTERRUPTED: (FailureClass.PREEMPTED, "interrupted, with a checkpoint saved"),
    137: (FailureClass.OUT_OF_MEMORY, "killed, probably because the node ran out of memory"),
    143: (FailureClass.PREEMPTED, "ended by SIGTERM"),
}

_EXIT = re.compile(
    r"(?:exit(?:ed)?(?: with)?|return(?:ed)?)(?: status)?(?: code)?:?\s+(?:status code\s+)?(\d{1,3})\b", re.IGNORECASE
)
_LOST_BY_MPI = 14
"""MPI_ERR_UNKNOWN, with which Open MPI ends a rank whose connection to another was closed; EXPORT has it too."""
_FAILED = "training failed (rank "
"""Beginning of the training's log line that says why it ends."""
_MAX_QUOTE_CHARS = 200
_LIMIT_TOLERANCE_S = 10.0
"""In the run history, start and end of a job that reached its limit may be seconds closer together than the limit."""

_ServiceRule = tuple[FailureClass, str]
NAME_TAKEN = "JobPropertyImmutable"
"""Azure ML's code if another job already has the name of the submitted one."""
NOT_PUBLISHED = "NotPublished"
"""Landfall's code if the workspace does not have the files, environment or code of a job."""
SERVICE_RULES: tuple[_ServiceRule, ...] = (
    (
        FailureClass.CONFIGURATION,
        rf"^40[034]/.*(?:UnknownTargetType|{NAME_TAKEN}|{NOT_PUBLISHED}|AuthorizationFailed)|^403/",
    ),
    (
        FailureClass.PREEMPTED,
        r"preempt(?:ed|ion)|low.?priority node|spot (?:vm|node)s?.{0,40}evict|node .{0,40}evicted",
    ),
    (FailureClass.TIMEOUT, r"exceeded .{0,40}(?:time ?out|time limit|max(?:imum)? run)|job timed? ?out|JobTimeout"),
    (
        FailureClass.NO_CAPACITY,
        (
            r"quota|not enough (?:cores|capacity|nodes)|insufficient .{0,30}capacity|Allocation ?failed"
            r"|SkuNotAvailable|out of capacity|no capacity"
        ),
    ),
    (FailureClass.CONFIGURATION, r"(?:StreamAccess|WriteStreams)\.Authentication"),
    (
        FailureClass.PACKAGES,
        (
            r"no matching distribution|could not find a version that satisfies|packages do not install"
            r"|ResolvePackageNotFound|PackagesNotFoundError|UnsatisfiableError|ResolutionImpossible"
            r"|Pip subprocess error"
        ),
    ),
    (FailureClass.IMAGE_BUILD, r"image ?build|failed to build .{0,40}image|failed to pull .{0,40}image|ImagePull"),
)
"""Applied only to the service's code and message, because a user's log may contain anything about quotas."""

LOG_RULES: tuple[_ServiceRule, ...] = (
    (
        FailureClass.OUT_OF_MEMORY,
        (
            r"CUDA_ERROR_OUT_OF_MEMORY|CUDA out of memory|OOM when allocating|ResourceExhaustedError"
            r"|RESOURCE_EXHAUSTED: .{0,60}memory|cudaErrorMemoryAllocation|oom-kill|Out of memory: Kill"
            r"|\bMemoryError\b"
        ),
    ),
    (
        FailureClass.COMMUNICATION,
        (
            r"NCCL (?:WARN|error|failure)|ncclSystemError|ncclUnhandledCudaError|ncclInternalError|ncclRemoteError"
            r"|HorovodInternalError|Stalled ranks:|ORTE has lost communication|PRTE has lost communication"
            r"|MPI_ABORT was invoked|MPI_ERR_|Connection reset by peer|a rank is (?:dead|stuck)"
            r"|^OSError: \[Errno 5\]|^shared\.output_files\.OutputFileError:"
        ),
    ),
    (FailureClass.USER_CODE, r"DataLossError: Unable to open table file"),  # weights or checkpoints
    (FailureClass.DATA, r"DataLossError|corrupted record at|crc mismatch"),
    (FailureClass.USER_CODE, r"^Traceback \(most recent call last\)"),
)
"""Applied to log and message, in this order: if a rank runs out of memory, the others lose their connection."""


IMAGE_FIX = "use an image for linux/amd64 with Python on its PATH and without an entry point that exits"
"""The fix for a container that ends before the script starts."""

SCRIPT_RULES: tuple[tuple[FailureClass, frozenset[int], str, str], ...] = (
    (
        FailureClass.ARGUMENTS,
        frozenset({2}),
        r"^\S+: error: (?:unrecognized arguments|the following arguments are required|ambiguous option|argument )",
        "let the script accept its arguments, or correct train.arguments or train.pass_paths",
    ),
    (
        FailureClass.PACKAGES,
        frozenset({1}),
        r"^(?:ModuleNotFoundError: |ImportError: cannot import name)",
        "add the package to the job's image, or your own module to the folder of the published code",
    ),
    (
        FailureClass.PACKAGES,
        frozenset({1}),
        r"^AttributeError: module 'tensorflow\S*' has no attribute",
        "use an image with the version of TensorFlow that the script was written for, or port it (docs/scripts.md)",
    ),
    (
        FailureClass.MISSING_FILE,
        frozenset({1, 2}),
        r"^(?:FileNotFoundError: |\S*NotFoundError: .*No such file|ValueError: File not found:|.*: can't open file )",
        "provide the file that the script opens: it starts in the folder of the published code",
    ),
    (
        FailureClass.MISSING_FILE,
        frozenset({ExitCode.MODEL}),
        r"(?:Pretrained weights|Model module) [^\n]{1,500} do(?:es)? not exist",
        "list the file in train.files and run landfall publish, or use an image that has it",
    ),
    (
        FailureClass.CONTAINER,
        frozenset({126, 127}),
        r"^.*(?:command not found|No such file or directory|Permission denied|exec format error)",
        IMAGE_FIX,
    ),
    (
        FailureClass.CONTAINER,
        frozenset({1, 125, 126, 127, 128, 255}),
        (
            r"^(?:.*exec [^\n]{0,200}: (?:exec format error|no such file or directory|permission denied)"
            r"|.*OCI runtime [^\n]{0,400}|.*executable file not found in \$PATH)"
        ),
        IMAGE_FIX,
    ),
)
"""Failure class, exit codes of Python or a shell, cause and fix; the data are never the cause."""
_RAISED = re.compile(r"^(?:[A-Za-z_]\w*\.)*\w*(?:Error|Exception)\b.*", re.MULTILINE)
"""The line of a traceback that names the exception."""


def classify(evidence: Evidence) -> Finding:
    """Return the failure class and the evidence for it. Never raises."""
    rules: tuple[Callable[[Evidence], Finding | None], ...] = (
        _by_service,
        _by_memory,
        _by_script,
        _by_exit_code,
        _by_log,
        _by_end,
    )
    for rule in rules:
        finding = rule(evidence)
        if finding is not None:
            return finding
    unread = f"; its log could not be read: {evidence.log_problem}" if evidence.log_problem else ""
    return Finding(failure_class=FailureClass.UNKNOWN, evidence=f"no known cause was found{unread}")


def _by_service(evidence: Evidence) -> Finding | None:
    # Azure ML appends the end of the log to its message. That part is not from the service.
    words = evidence.error.partition(" Error: ")[0]
    return _first_match(SERVICE_RULES, f"{evidence.error_code}: {words}", "Azure ML says")


def _by_memory(evidence: Evidence) -> Finding | None:
    """Check memory before the exit code, because the reported rank may have ended only after another rank did."""
    return _first_match(LOG_RULES[:1], _text(evidence), "the log says")


def _by_script(evidence: Evidence) -> Finding | None:
    """Find what a script or its image lacks, from the last exception or the messages of argparse and the shell."""
    found = _EXIT.search(evidence.error)
    text = next(reversed(_RAISED.findall(evidence.log_tail)), evidence.log_tail)
    for failure_class, exits, pattern, fix in SCRIPT_RULES:
        if found is not None and int(found[1]) in exits and (line := re.search(pattern, text, re.MULTILINE)):
            words = f"the log says: {_line_of(text, line)}"
            return Finding(failure_class=failure_class, evidence=words, fix=fix)
    return None


def _by_exit_code(evidence: Evidence) -> Finding | None:
    found = _EXIT.search(evidence.error) or _EXIT.search(evidence.log_tail)
    known = EXIT_CODES.get(int(found[1])) if found else None
    if found is None or known is None:
        return None
    if known[0] is FailureClass.DATA and _is_silent(evidence):
        return None  # The training names the data if they are at fault; an entry point may end with any code.
    if int(found[1]) == _LOST_BY_MPI and not evidence.log_problem and _FAILED not in _text(evidence):
        lost = f"exit code {found[1]}, with which MPI ends a rank that has lost another one; no rank says why"
        return _by_log(evidence) or Finding(failure_class=FailureClass.COMMUNICATION, evidence=lost)
    return Finding(failure_class=known[0], evidence=f"exit code {found[1]}: {known[1]}")


def _by_log(evidence: Evidence) -> Finding | None:
    return _first_match(LOG_RULES[1:], _text(evidence), "the log says")


def _by_end(evidence: Evidence) -> Finding | None:
    if evidence.status == "Canceled":
        if evidence.ran_s >= evidence.timeout_s - _LIMIT_TOLERANCE_S:
            text = f"canceled after {evidence.ran_s:.0f} s, its limit was {evidence.timeout_s:.0f} s"
            return Finding(failure_class=FailureClass.TIMEOUT, evidence=text)
        return Finding(failure_class=FailureClass.CANCELED, evidence="canceled in Azure ML before its time limit")
    if evidence.log_problem:
        return None  # The cause is only in the log of the process.
    if "ExecutionFailed" in evidence.error_code or _EXIT.search(evidence.error):
        if _is_silent(evidence):
            words = f"the container ended without any output: {evidence.error}"[:_MAX_QUOTE_CHARS]
            return Finding(failure_class=FailureClass.CONTAINER, evidence=words, fix=IMAGE_FIX)
        words = f"the user's process failed: {evidence.error_code} {evidence.error}"
        return Finding(failure_class=FailureClass.USER_CODE, evidence=words[:_MAX_QUOTE_CHARS])
    return None


def _is_silent(evidence: Evidence) -> bool:
    """Whether a process ended without output. Landfall writes a line for each rank before it starts a script."""
    if "ExecutionFailed" not in evidence.error_code or evidence.log_problem:
        return False
    return not evidence.log_tail.strip() and not evidence.error.partition(_LOG_FOLLOWS)[2].strip()


def _text(evidence: Evidence) -> str:
    return f"{evidence.log_tail}\n{evidence.error}"


def _first_match(rules: tuple[_ServiceRule, ...], text: str, who: str) -> Finding | None:
    for failure_class, pattern in rules:
        found = re.search(pattern, text, re.IGNORECASE | re.MULTILINE)
        if found is not None:
            return Finding(failure_class=failure_class, evidence=f"{who}: {_line_of(text, found)}")
    return None


def _line_of(text: str, found: re.Match[str]) -> str:
    start = text.rfind("\n", 0, found.start()) + 1
    end = text.find("\n", found.end())
    line = text[max(start, found.start() - 80) : end if end >= 0 else None]
    return " ".join(line.split())[:_MAX_QUOTE_CHARS]


MAX_REASON_CHARS = 300
_LOG_FOLLOWS = " Error: "
"""Azure ML appends the end of the log to its message; the run keeps that log separately."""


def brief_reason(error: str | None, log_tail: str | None) -> str:
    """Return one bounded line about a failed job; the rest is in the run's ``log_tail``."""
    words = " ".join((error or "Azure ML reports a failed job without a reason").split())
    if len(words) > MAX_REASON_CHARS:
        words = _cut(words.partition(_LOG_FOLLOWS)[0])
    last = _last_line(log_tail)
    return f"{words} The log ends with: {last}" if last and last not in words else words


def _last_line(log_tail: str | None) -> str:
    lines = [line.strip() for line in (log_tail or "").splitlines() if line.strip()]
    return _cut(lines[-1]) if lines else ""


def _cut(text: str) -> str:
    return text if len(text) <= MAX_REASON_CHARS else text[: MAX_REASON_CHARS - 1].rstrip() + "…"
