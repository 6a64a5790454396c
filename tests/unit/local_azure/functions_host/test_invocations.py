from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from local_azure.functions_host.invocations import Invoker, Outcome
from local_azure.functions_host.worker import TypedData
from local_azure.processes import PATIENCE_S
from tests.unit.local_azure.functions_host.worker_double import RecordingOutputs, RecordingWorker, make_trigger

FUNCTION = make_trigger("queueTrigger", "take")


def _invoke(worker: RecordingWorker, outputs: RecordingOutputs) -> Outcome:
    invoker = Invoker(worker=worker, outputs=outputs, root=Path())
    return asyncio.run(invoker.invoke(FUNCTION, TypedData(string="body"), {"Id": TypedData(string="7")}))


def test_the_worker_is_asked_for_the_function_with_its_parameter() -> None:
    """The trigger's name carries the data, the metadata goes along."""
    worker = RecordingWorker()
    outcome = _invoke(worker, RecordingOutputs())

    (request,) = worker.requests
    (parameter,) = request.input_data
    assert (outcome.invocation_id, "id-of-take") == (request.invocation_id, request.function_id)
    assert ("message", "body") == (parameter.name, parameter.data.string)
    assert "7" == request.trigger_metadata["Id"].string


def test_an_invocation_is_one_log_line(caplog: pytest.LogCaptureFixture) -> None:
    """The line has the function, the id, the duration and the result."""
    with caplog.at_level(logging.INFO, logger="dev_host"):
        outcome = _invoke(RecordingWorker(error="ValueError: no"), RecordingOutputs())

    (line,) = caplog.messages
    assert line.startswith(f"invocation of take {outcome.invocation_id} took ")
    assert line.endswith(" ms: failed: ValueError: no")


def test_an_output_that_cannot_be_written_fails_the_invocation() -> None:
    """The error is the first line of what the client said."""
    outcome = _invoke(RecordingWorker(), RecordingOutputs(error=OSError("queue gone\nRequestId: 1")))

    assert "output not written: OSError: queue gone" == outcome.error


def test_outputs_are_written_after_success_only() -> None:
    """A failed function leaves nothing behind."""
    outputs = RecordingOutputs()
    _invoke(RecordingWorker(error="ValueError: no"), outputs)
    assert [] == outputs.written
    _invoke(RecordingWorker(), outputs)
    assert ["take"] == outputs.written


def test_draining_ends_when_nothing_runs() -> None:
    """Without invocations it ends at once; it returns False if one outlives the grace period."""

    async def drain() -> list[bool]:
        gate = asyncio.Event()
        invoker = Invoker(worker=RecordingWorker(gate=gate), outputs=RecordingOutputs(), root=Path())
        idle = await invoker.drain(0.0)
        running = asyncio.create_task(invoker.invoke(FUNCTION, TypedData(string="")))
        await asyncio.sleep(0)  # lets the task begin; it then waits for the gate
        busy = await invoker.drain(0.0)
        gate.set()
        drained = await invoker.drain(PATIENCE_S)
        await running
        return [idle, busy, drained]

    assert [True, False, True] == asyncio.run(drain())
