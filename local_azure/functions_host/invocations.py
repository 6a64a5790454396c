"""Invocations of functions, each with an id, a log line and an outcome, and their output bindings."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
import time
import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from azure.core.exceptions import ResourceExistsError

from local_azure.functions_host.functions import Binding, Function, failing_line
from local_azure.functions_host.settings import BindingError
from local_azure.functions_host.worker import InvocationRequest, ParameterBinding, StatusResult, TypedData
from local_azure.storage_connections import storage_connection

log = logging.getLogger("dev_host")

SERVED_OUTPUTS = ("http", "queue", "blob")


class InvokesFunctions(Protocol):
    """Interface of the worker; tests have a double."""

    async def invoke(self, request: InvocationRequest) -> Any:
        """Call a function and return the runtime's InvocationResponse."""


class WritesOutputs(Protocol):
    """Interface for writing a function's results to its output bindings."""

    async def write(self, function: Function, response: Any) -> None:
        """Write every output of ``response``. Raises an exception if that fails."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of an invocation."""

    invocation_id: str
    error: str = ""
    """The exception's type and message; empty after success."""
    return_value: Any = None
    """The return value as TypedData, or None."""

    @property
    def succeeded(self) -> bool:
        """Whether the function returned and its outputs were written."""
        return not self.error


@dataclass(kw_only=True)
class Invoker:
    """Calls functions, and tracks those that are running."""

    worker: InvokesFunctions
    outputs: WritesOutputs
    root: Path
    verbose: bool = False
    """Whether to log the stack traces of failed invocations."""
    running: dict[str, str] = field(default_factory=dict)
    """Invocation id to function name."""
    ended: Counter[str] = field(default_factory=Counter)
    """Function name to the number of its invocations that have ended."""
    _idle: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while no invocation runs."""

    async def invoke(
        self, function: Function, data: TypedData, metadata: Mapping[str, TypedData] | None = None
    ) -> Outcome:
        """Call `function` with the trigger's data and log one line about it."""
        invocation_id = str(uuid.uuid4())
        self.running[invocation_id] = function.name
        self._idle.clear()
        started = time.monotonic()
        try:
            outcome = await self._call(function, _request(function, invocation_id, data, metadata or {}))
        finally:
            del self.running[invocation_id]
            self.ended[function.name] += 1
            if not self.running:
                self._idle.set()
        self._log(function, outcome, time.monotonic() - started)
        return outcome

    async def drain(self, grace_s: float) -> bool:
        """Wait at most `grace_s` until nothing runs; return whether nothing runs."""
        if self.running:
            with contextlib.suppress(TimeoutError):  # visible in the return value
                await asyncio.wait_for(self._idle.wait(), grace_s)
        return not self.running

    async def _call(self, function: Function, request: InvocationRequest) -> Outcome:
        response = await self.worker.invoke(request)
        if response.result.status != StatusResult.Success:
            exception = response.result.exception
            return Outcome(invocation_id=request.invocation_id, error=self._describe(exception))
        try:
            await self.outputs.write(function, response)
        except Exception as error:  # noqa: BLE001 (whatever a storage client raises fails this invocation, not the host)
            reason = str(error).split("\n", maxsplit=1)[0]
            message = f"output not written: {type(error).__name__}: {reason}"
            return Outcome(invocation_id=request.invocation_id, error=message)
        return Outcome(invocation_id=request.invocation_id, return_value=response.return_value)

    def _describe(self, exception: Any) -> str:
        stack_trace = str(exception.stack_trace or "")
        if self.verbose:
            return f"{exception.message}\n{stack_trace}"
        line = failing_line(self.root, stack_trace)
        return f"{exception.message} ({line})" if line else str(exception.message)

    def _log(self, function: Function, outcome: Outcome, duration_s: float) -> None:
        what = f"invocation of {function.name} {outcome.invocation_id} took {duration_s * 1000:.0f} ms"
        if outcome.succeeded:
            log.info(f"{what}: succeeded")
        else:
            log.error(f"{what}: failed: {outcome.error}")


def _request(
    function: Function, invocation_id: str, data: TypedData, metadata: Mapping[str, TypedData]
) -> InvocationRequest:
    parameter = ParameterBinding(name=function.trigger["name"], data=data)
    return InvocationRequest(
        invocation_id=invocation_id,
        function_id=function.function_id,
        input_data=[parameter],
        trigger_metadata=dict(metadata),
    )


@dataclass(frozen=True, kw_only=True)
class OutputWriter:
    """Writes queue and blob outputs. Each has its own client, because outputs are rare here."""

    settings: Mapping[str, str]
    message_encoding: Literal["base64", "none"]

    async def write(self, function: Function, response: Any) -> None:
        """Write every queue and blob output of ``response``. Raises the storage client's errors."""
        values = {output.name: output.data for output in response.output_data or ()}
        if response.return_value is not None:
            values["$return"] = response.return_value
        for binding in function.bindings:
            if binding["name"] in values and binding["type"] in ("queue", "blob"):
                await self._write_one(function, binding, _content(values[binding["name"]]))

    async def _write_one(self, function: Function, binding: Binding, content: list[bytes]) -> None:
        connection = storage_connection(str(binding.get("connection") or "AzureWebJobsStorage"), self.settings)
        if binding["type"] == "queue":
            async with connection.queue_service() as queues:
                queue = queues.get_queue_client(binding["queueName"])
                with contextlib.suppress(ResourceExistsError):  # The Functions host also creates the queue.
                    await queue.create_queue()
                for body in content:
                    await queue.send_message(self._encode(body))
            return
        container, _, name = str(binding["path"]).partition("/")
        if not name or "{" in name:
            raise BindingError(
                f"function {function.name}: a blob output's path must be container/name, not {binding['path']!r}"
            )
        async with connection.blob_service() as blobs:
            await blobs.get_blob_client(container, name).upload_blob(b"".join(content), overwrite=True)

    def _encode(self, body: bytes) -> str:
        return base64.b64encode(body).decode() if self.message_encoding == "base64" else body.decode()


def _content(value: Any) -> list[bytes]:
    """Return a single value, or each item of a JSON array."""
    kind = value.WhichOneof("data")
    content = getattr(value, kind)
    if kind == "json":
        items = json.loads(content)
        return [_item(item) for item in items] if isinstance(items, list) else [_item(items)]
    return [content if isinstance(content, bytes) else str(content).encode()]


def _item(item: Any) -> bytes:
    if isinstance(item, dict) and set(item) == {"id", "body"}:  # a func.QueueMessage
        return str(item["body"]).encode()
    return item.encode() if isinstance(item, str) else json.dumps(item).encode()
