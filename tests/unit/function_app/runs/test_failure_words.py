"""A failure in one line."""

from __future__ import annotations

from function_app.runs.following import MAX_WORDS_CHARS, brief_reason

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
    assert brief_reason(None, None) == "Azure ML says that the job failed, and not why"


def test_every_part_is_bounded() -> None:
    """A log of one endless line, and a message without a log's mark, stay within a chat message."""
    assert len(brief_reason("x" * 10_000, "y" * 10_000)) < 3 * MAX_WORDS_CHARS
