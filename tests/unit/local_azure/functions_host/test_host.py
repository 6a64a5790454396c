from __future__ import annotations

import logging

from azure_functions_runtime import invocation_id_cv

from local_azure.functions_host.host import LineFormatter


def _record(**extra: object) -> logging.LogRecord:
    record = logging.makeLogRecord({"name": "app.steps", "levelname": "INFO", "msg": "took %s", "args": ("it",)})
    record.created = 1_795_168_800.5
    vars(record).update(extra)
    return record


def test_a_line_has_time_level_logger_message_and_fields() -> None:
    """Outside an invocation."""
    line = LineFormatter({}).format(_record(action="accepted", shard="train-0"))

    assert "10:00:00.500 INFO    app.steps: took it  action=accepted  shard=train-0" == line


def test_inside_an_invocation_the_function_is_named() -> None:
    """The runtime sets the id in the invocation's context."""
    token = invocation_id_cv.set("i-1")
    line = LineFormatter({"i-1": "shard_uploaded"}).format(_record())
    invocation_id_cv.reset(token)

    assert "10:00:00.500 INFO    shard_uploaded app.steps: took it" == line
