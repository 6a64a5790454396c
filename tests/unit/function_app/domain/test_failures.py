"""Why an attempt failed: evidence as Azure ML, NCCL, MPI, TensorFlow and the training write it, and its class."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from function_app.domain.failures import (
    CORRECTABLE,
    EXIT_CODES,
    MAX_REASON_CHARS,
    REMEDIES,
    RETRYING,
    Evidence,
    FailureClass,
    brief_reason,
    classify,
)
from shared.exit_codes import ExitCode
from tests.support.processes import REPOSITORY

EXITED = (
    "Execution failed. User process 'python' exited with status code {code}. Please check log file "
    "'user_logs/std_log_process_00.txt' for error details. Error: {tail}"
)


def exited(code: int, tail: str = "") -> str:
    """Azure ML's words for a process that ended badly, the end of its log appended."""
    return EXITED.format(code=code, tail=tail)


@pytest.mark.parametrize(
    ("expected", "error_code", "error", "log_tail"),
    [
        ("preempted", "UserError", "The job was preempted because low-priority capacity was reclaimed.", ""),
        ("preempted", "", "Node tvmps_1 was evicted: Spot VM eviction", ""),
        ("preempted", "UserError/ExecutionFailed", exited(75), "training failed (rank 0): SIGTERM: saved step 410"),
        ("preempted", "UserError/ExecutionFailed", exited(143), ""),
        ("no_capacity", "UserError/QuotaExceeded", "Not enough cores", ""),
        ("no_capacity", "", "Operation could not be completed as it results in exceeding approved Total Quota", ""),
        ("no_capacity", "AllocationFailed", "Allocation failed. We do not have sufficient capacity", ""),
        (
            "configuration",
            "UserError/ScriptExecution.StreamAccess.Authentication",
            "Authentication failed when trying to access the stream.",
            "",
        ),
        ("configuration", "", "Error Code: ScriptExecution.WriteStreams.Authentication", ""),
        ("configuration", "404/NotPublished", "the workspace has no version 1 of landfall-files", ""),
        ("image_build", "UserError/ImageBuildFailure", "Image build failed. For more details, check log file", ""),
        (
            "packages",
            "UserError/ImageBuildFailure",
            "Image build failed: No matching distribution found for a==1",
            "",
        ),
        ("packages", "", "Image build failed: packages do not install: nosuch==1.0", ""),
        ("image_build", "", "Failed to pull Docker image mcr.example/landfall:1", ""),
        (
            "out_of_memory",
            "UserError/ExecutionFailed",
            exited(1),
            "tensorflow ... OOM when allocating tensor with shape[64]",
        ),
        ("out_of_memory", "", exited(1), "2026 E gpu CUDA_ERROR_OUT_OF_MEMORY: out of memory"),
        ("out_of_memory", "", exited(15), "OOM when allocating tensor\nHorovodInternalError: a rank is dead"),
        ("out_of_memory", "", exited(137), ""),
        ("communication", "", exited(1), "node-1:12:99 [0] NCCL WARN Net : Connection closed by remote peer"),
        ("communication", "", exited(1), "Stalled ranks:\n0: [DistributedGradientTape]"),
        ("communication", "", exited(1), "PRTE has lost communication with a remote daemon."),
        ("communication", "UserError/ExecutionFailed", exited(15), "training failed (rank 0): rank 1 is dead"),
        ("communication", "", exited(17), ""),
        ("communication", "UserError/ExecutionFailed", exited(14), "step 410\nstep 420"),
        ("user_code", "UserError/ExecutionFailed", exited(14), "Traceback (most recent call last):\nKeyError: 'x'"),
        (
            "user_code",
            "",
            exited(14),
            "training failed (rank 0): model.keras, loaded back, sums loss to another value",
        ),
        (
            "communication",
            "",
            exited(21, "/out/report/training_report.json cannot be written: Input/output error"),
            "",
        ),
        ("missing_resources", "UserError/ExecutionFailed", exited(20, "Expected 8 ranks on 2 nodes"), ""),
        (
            "communication",
            "",
            exited(1),
            "Traceback (most recent call last):\nOSError: [Errno 5] Input/output error",
        ),
        ("communication", "", exited(1), "Traceback\nshared.output_files.OutputFileError: a cannot be written"),
        ("data", "UserError/ExecutionFailed", exited(10), "training failed: shard train-00001 should have CRC32C"),
        ("data", "", exited(1), "tensorflow.python.framework.errors_impl.DataLossError: corrupted record at 12"),
        ("user_code", "UserError/ExecutionFailed", exited(13), "the loss became NaN at step 12"),
        ("user_code", "UserError/ExecutionFailed", exited(1), "Traceback (most recent call last):\nKeyError: 'x'"),
        ("user_code", "UserError/ExecutionFailed", exited(1, "about to fail: there is no column"), ""),
        ("unknown", "", "", ""),
        ("unknown", "ServiceError", "Something went wrong.", ""),
    ],
)
def test_what_was_seen_decides_on_the_class(expected: str, error_code: str, error: str, log_tail: str) -> None:
    """One row for each kind of message; the finding quotes what decided."""
    finding = classify(Evidence(status="Failed", error_code=error_code, error=error, log_tail=log_tail))
    assert expected == finding.failure_class, finding
    assert finding.evidence


@pytest.mark.parametrize(
    ("expected", "ran_s", "error"),
    [
        ("canceled", 10.0, ""),
        ("timeout", 3598.0, ""),
        ("timeout", 10.0, "The job exceeded its time limit of 3600 seconds"),
        ("preempted", 10.0, "low priority node was preempted"),
    ],
)
def test_a_canceled_job_was_ended_by_a_person_or_by_its_limit(expected: str, ran_s: float, error: str) -> None:
    """Azure ML cancels at the time limit, and says Canceled for both."""
    finding = classify(Evidence(status="Canceled", error=error, ran_s=ran_s, timeout_s=3600.0))
    assert expected == finding.failure_class


def test_a_users_log_about_quotas_is_no_word_of_the_service() -> None:
    """This holds even if Azure ML appends the end of the log to its message."""
    error = exited(1, "Traceback (most recent call last): ValueError: quota of labels preempted")
    finding = classify(Evidence(status="Failed", error_code="UserError/ExecutionFailed", error=error))
    assert FailureClass.USER_CODE == finding.failure_class


def test_every_exit_code_of_the_training_has_a_class() -> None:
    """A code that is added there must be added here; 0 and 1 say nothing."""
    codes = {int(code) for code in ExitCode} - {ExitCode.SUCCESS, ExitCode.UNEXPECTED}
    assert codes <= set(EXIT_CODES)


def test_every_class_has_a_remedy_and_a_person_has_the_last_word() -> None:
    """Nothing is left to chance."""
    assert (set(FailureClass), False) == (set(REMEDIES), REMEDIES[FailureClass.CANCELED] in RETRYING)


@given(st.text(), st.text(), st.text())
def test_whatever_was_seen_has_a_class_and_bounded_evidence(error_code: str, error: str, log_tail: str) -> None:
    """Logs hold anything."""
    finding = classify(Evidence(status="Failed", error_code=error_code, error=error, log_tail=log_tail))
    assert len(finding.evidence) <= 300


def test_the_page_on_attempts_names_every_class_with_its_remedy() -> None:
    """What users read is what is done."""
    rows = [line.split("|") for line in (REPOSITORY / "docs" / "attempts.md").read_text().splitlines()]
    stated = {row[1].strip(" `"): row[3].split("`")[1] for row in rows if len(row) == 5 and "`" in row[3]}
    assert {str(name): str(remedy) for name, remedy in REMEDIES.items()} == stated


SERVICE = "Execution failed. User process 'python' exited with status code 1. Please check log file 'a.txt'. Error: "


def test_a_long_message_is_cut_before_the_log_that_the_service_appends() -> None:
    """People read what happened and the log's last line, not the traceback in between."""
    traceback = "Traceback (most recent call last):\n" + "  File x\n" * 200
    log = traceback + "ModuleNotFoundError: No module named 'matplotlib'\n\n"
    assert brief_reason(SERVICE + log, log) == (
        "Execution failed. User process 'python' exited with status code 1. Please check log file 'a.txt'. "
        "The log ends with: ModuleNotFoundError: No module named 'matplotlib'"
    )


def test_a_short_message_stays_as_it_is() -> None:
    """What is short already is not said twice."""
    assert brief_reason("disk is full", "epoch 1\ndisk is full\n") == "disk is full"


def test_nothing_said_is_said() -> None:
    """A failure without a message and without a log still has a reason."""
    assert brief_reason(None, None) == "Azure ML reports a failed job without a reason"


def test_every_part_is_bounded() -> None:
    """A log of one endless line, and a message without a log's mark, stay within a chat message."""
    assert len(brief_reason("x" * 10_000, "y" * 10_000)) < 3 * MAX_REASON_CHARS


TRACEBACK = 'Traceback (most recent call last):\n  File "mine.py", line 1, in <module>\n'


@pytest.mark.parametrize(
    ("expected", "code", "log", "fix"),
    [
        (
            "arguments",
            2,
            "usage: mine.py [-h] [--rate R]\nmine.py: error: unrecognized arguments: --data /d",
            "train.pass_paths",
        ),
        ("arguments", 2, "mine.py: error: the following arguments are required: --folds", "correct train.arguments"),
        ("arguments", 2, "mine.py: error: argument --rate: invalid float value: 'x'", "correct train.arguments"),
        ("packages", 1, f"{TRACEBACK}ModuleNotFoundError: No module named 'albumentations'", "add the package"),
        ("packages", 1, f"{TRACEBACK}ImportError: cannot import name 'x' from 'keras'", "add the package"),
        (
            "packages",
            1,
            f"{TRACEBACK}AttributeError: module 'tensorflow' has no attribute 'estimator'",
            "use an image with",
        ),
        (
            "packages",
            1,
            f"{TRACEBACK}AttributeError: module 'tensorflow._api.v2.train' has no attribute 'x'",
            "use an image with",
        ),
        (
            "missing_file",
            1,
            f"{TRACEBACK}FileNotFoundError: [Errno 2] No such file or directory: 'w.h5'",
            "provide the file",
        ),
        ("missing_file", 1, f"{TRACEBACK}ValueError: File not found: filepath=w.keras.", "provide the file"),
        (
            "missing_file",
            1,
            f"{TRACEBACK}tensorflow.python.framework.errors_impl.NotFoundError: w.index; No such file or directory",
            "provide the file",
        ),
        (
            "missing_file",
            2,
            "python: can't open file '/wd/mine.py': [Errno 2] No such file or directory",
            "provide the file",
        ),
        (
            "missing_file",
            12,
            "training failed (rank 0): Pretrained weights /w.keras do not exist.",
            "list the file in train.files",
        ),
        (
            "missing_file",
            12,
            "training failed (rank 0): Model module net.py does not exist; its path is",
            "list the file in train.files",
        ),
        ("container", 127, "/bin/bash: line 1: python: command not found", "Python on its PATH"),
        ("container", 126, "/bin/bash: line 1: /usr/bin/python: Permission denied", "Python on its PATH"),
        ("container", 1, "exec /usr/bin/python: exec format error", "for linux/amd64"),
        ("container", 255, "exec /opt/entry.sh: no such file or directory", "without an entry point that exits"),
        (
            "container",
            128,
            'OCI runtime create failed: exec: "python": executable file not found in $PATH',
            "Python on its PATH",
        ),
    ],
)
def test_what_a_script_lacks_is_said_with_what_corrects_it(expected: str, code: int, log: str, fix: str) -> None:
    """Never a fault of the data, and corrected without force; the script's own words are the evidence."""
    evidence = Evidence(status="Failed", error_code="UserError/ExecutionFailed", error=exited(code), log_tail=log)
    finding = classify(evidence)
    assert (expected, True, True) == (finding.failure_class, fix in finding.fix, expected in CORRECTABLE), finding
    assert log.splitlines()[-1][:60] in finding.evidence


@pytest.mark.parametrize(
    ("expected", "code", "log"),
    [
        ("user_code", 1, f"{TRACEBACK}FileNotFoundError: x\n\nDuring handling\n\n{TRACEBACK}KeyError: 'x'"),
        ("communication", 1, f"{TRACEBACK}FileNotFoundError: x\n{TRACEBACK}horovod.HorovodInternalError: lost"),
        ("data", 10, f"{TRACEBACK}FileNotFoundError: [Errno 2] No such file or directory: 'shard'"),
        ("out_of_memory", 1, f"{TRACEBACK}ModuleNotFoundError: x\n{TRACEBACK}MemoryError"),
        ("user_code", 1, f"{TRACEBACK}errors_impl.DataLossError: Unable to open table file w: not an sstable"),
        ("data", 1, f"{TRACEBACK}errors_impl.DataLossError: corrupted record at 12"),
        ("user_code", 3, "mine.py: error: unrecognized arguments: --data"),
    ],
)
def test_what_a_script_only_met_on_its_way_does_not_decide(expected: str, code: int, log: str) -> None:
    """The last exception counts, and an exit code with a meaning; damaged weights are no damaged data."""
    evidence = Evidence(status="Failed", error_code="UserError/ExecutionFailed", error=exited(code), log_tail=log)
    assert expected == classify(evidence).failure_class


@pytest.mark.parametrize("code", [1, 3, 10, 64, 126, 255])
@pytest.mark.parametrize("log", ["", " \n"])
def test_a_container_that_ends_without_output_is_its_images_fault(code: int, log: str) -> None:
    """The exit code does not matter: neither data nor script were read, so neither is the cause."""
    evidence = Evidence(status="Failed", error_code="UserError/ExecutionFailed", error=exited(code), log_tail=log)
    finding = classify(evidence)
    assert ("container", True) == (finding.failure_class, "Python on its PATH" in finding.fix), finding
    assert f"exited with status code {code}" in finding.evidence


@pytest.mark.parametrize(
    ("expected", "evidence"),
    [
        ("data", Evidence(status="Failed", error=exited(10), log_tail="shard train-00001 should have CRC32C")),
        ("data", Evidence(status="Failed", error=exited(10), log_problem="403")),
        ("out_of_memory", Evidence(status="Failed", error=exited(137))),
        ("preempted", Evidence(status="Failed", error=exited(143))),
        ("unknown", Evidence(status="Failed", error=exited(3), log_problem="403")),
        ("user_code", Evidence(status="Failed", error=exited(3), log_tail="epoch 1")),
        ("user_code", Evidence(status="Failed", error=exited(3))),
    ],
)
def test_a_container_of_which_more_is_known_is_not_silent(expected: str, evidence: Evidence) -> None:
    """A log, a signal, a log that exists and could not be read, or a service that does not say what ran."""
    code = "" if expected == "user_code" and not evidence.log_tail else "UserError/ExecutionFailed"
    assert expected == classify(replace(evidence, error_code=code)).failure_class
