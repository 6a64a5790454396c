"""A worker for the dev host's unit tests: it records its requests and returns a fixed answer."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from local_azure.functions_host.functions import Function
from local_azure.functions_host.worker import PROTOS, InvocationRequest, StatusResult


@dataclass(kw_only=True)
class RecordingWorker:
    """Answers every invocation with ``return_value``, or with ``error`` where that is not empty."""

    return_value: Any = None
    error: str = ""
    requests: list[InvocationRequest] = field(default_factory=list)
    gate: asyncio.Event | None = None
    """Set by the test to let invocations end; None lets them end at once."""
    most_at_once: int = 0
    """The largest number of invocations that ran side by side."""
    _running: int = 0

    async def invoke(self, request: InvocationRequest) -> Any:
        """Let others run before answering, so that overlaps show."""
        self.requests.append(request)
        self._running += 1
        self.most_at_once = max(self.most_at_once, self._running)
        await (self.gate.wait() if self.gate else asyncio.sleep(0))
        self._running -= 1
        if self.error:
            failure = PROTOS.RpcException(message=self.error, stack_trace="")
            return PROTOS.InvocationResponse(result=StatusResult(status=StatusResult.Failure, exception=failure))
        return PROTOS.InvocationResponse(
            result=StatusResult(status=StatusResult.Success), return_value=self.return_value, output_data=[]
        )


@dataclass(kw_only=True)
class RecordingOutputs:
    """Takes outputs; fails with ``error`` where that is set."""

    error: Exception | None = None
    written: list[str] = field(default_factory=list)

    async def write(self, function: Function, response: Any) -> None:
        """Remember whose outputs these were."""
        del response
        if self.error:
            raise self.error
        self.written.append(function.name)


def make_trigger(kind: str, name: str = "f", **binding: Any) -> Function:
    """A function with one trigger binding."""
    trigger = {"type": kind, "name": "message", "direction": "IN", **binding}
    return Function(name=name, function_id=f"id-of-{name}", bindings=(trigger,))
