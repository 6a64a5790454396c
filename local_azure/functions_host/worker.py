"""Microsoft's worker runtime, and stand-ins for its messages from and to the Functions host.

`azure-functions-runtime` never imports protobuf: its caller passes a module with classes that behave like messages.
Names and numbers are from FunctionRpc.proto, https://github.com/Azure/azure-functions-language-worker-protobuf.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import threading
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, TypeVar

from local_azure.functions_host.functions import Function, describe_failure, describe_no_functions, make_function
from local_azure.functions_host.settings import DevHostError

T = TypeVar("T")


class Worker:
    """Runs the app in a thread with its own event loop, so that a blocking app cannot stop the host.

    There can be only one per process, because the runtime keeps its index in module globals.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="worker", daemon=True)
        self._thread.start()

    async def index(self, settings: Mapping[str, str]) -> list[Function]:
        """Import the app and return its functions. Raises DevHostError with the reason if there are none."""
        self._prepare_process()
        response = await self._call(self._initialise())
        if response.result.status != StatusResult.Success:
            raise DevHostError(describe_failure(self._root, response.result.exception))
        from azure_functions_runtime import functions_metadata_request

        metadata = await self._call(functions_metadata_request(_request()))
        if not metadata.function_metadata_results:
            raise DevHostError(describe_no_functions(self._root))
        return [self._function(entry, settings) for entry in metadata.function_metadata_results]

    async def invoke(self, request: InvocationRequest) -> Any:
        """Call a function and return the runtime's InvocationResponse."""
        return await self._call(self._invoke(request))

    def stop(self) -> None:
        """End the thread; running invocations are abandoned."""
        self._loop.call_soon_threadsafe(self._loop.stop)

    async def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def _initialise(self) -> Any:
        from azure_functions_runtime import start_threadpool_executor, worker_init_request

        start_threadpool_executor()
        message = SimpleNamespace(capabilities={}, function_app_directory=str(self._root))
        runtime_log = logging.getLogger("azure.functions")
        runtime_log.setLevel(logging.CRITICAL + 1)  # The dev host's own message replaces its log.
        try:
            return await worker_init_request(_request(worker_init_request=message))
        except SystemExit as error:
            return PROTOS.WorkerInitResponse(result=_failure(f"SystemExit: {error}: the app ended the process"))
        finally:
            runtime_log.setLevel(logging.WARNING)

    async def _invoke(self, request: InvocationRequest) -> Any:
        from azure_functions_runtime import invocation_id_cv, invocation_request

        invocation_id_cv.set(request.invocation_id)
        try:
            return await invocation_request(_request(invocation_request=request))
        except SystemExit as error:
            # Otherwise it would end the worker's thread and leave every later invocation without an answer.
            return PROTOS.InvocationResponse(result=_failure(f"SystemExit: {error}: the function ended the process"))

    def _prepare_process(self) -> None:
        os.environ.pop("CONTAINER_NAME", None)  # The runtime would conclude that it runs in Azure.
        os.environ["AzureWebJobsScriptRoot"] = str(self._root)  # noqa: SIM112 (the runtime's name)
        # In production the app's folder is searched first, then its packages, then the worker's.
        packages = self._root / ".python_packages" / "lib" / "site-packages"
        sys.path[:0] = [str(self._root), *([str(packages)] if packages.is_dir() else [])]

    def _function(self, metadata: Any, settings: Mapping[str, str]) -> Function:
        bindings = [json.loads(binding) for binding in metadata.raw_bindings]
        return make_function(metadata.name, metadata.function_id, bindings, settings)


def _failure(message: str) -> StatusResult:
    exception = PROTOS.RpcException(message=message, stack_trace="")
    return StatusResult(status=StatusResult.Failure, exception=exception)


def _request(**message: Any) -> SimpleNamespace:
    return SimpleNamespace(request=SimpleNamespace(**message), properties={"host": "127.0.0.1", "protos": PROTOS})


class Message:
    """A message whose unset fields are None, as the runtime expects from protobuf."""

    choices: ClassVar[tuple[str, ...]] = ()
    """Fields of which only one is set (protobuf's *oneof*)."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)

    def __getattr__(self, name: str) -> Any:
        # The runtime distinguishes a message from a module by looking for `TypedData`.
        if name.startswith("__") or name == "TypedData":
            raise AttributeError(name)
        return None

    def WhichOneof(self, _group: str) -> str | None:  # noqa: N802 (protobuf's name)
        """The name of the one field that is set, or None."""
        return next((name for name in self.choices if name in self.__dict__), None)


class TypedData(Message):
    """A value that is passed to or returned by a function."""

    choices = ("string", "json", "bytes", "stream", "http", "int", "double", "model_binding_data")


class ParameterBinding(Message):
    """A value for one of a function's parameters."""

    choices = ("data",)


class StatusResult(Message):
    """The result of a request to the worker."""

    Failure = 0
    Success = 1
    Cancelled = 2


class BindingInfo(Message):
    """Direction and data type of a binding."""

    undefined = 0
    string = 1
    binary = 2
    stream = 3
    out = 1
    inout = 2


setattr(BindingInfo, "in", 0)  # a keyword, so it cannot be assigned in the class body


class RpcHttp(Message):
    """An HTTP request or response."""


class _SameSite:
    Lax = 1
    Strict = 2
    ExplicitNone = 3


setattr(_SameSite, "None", 0)  # also a keyword


class RpcHttpCookie(Message):
    """One cookie of a response."""

    SameSite = _SameSite


SAME_SITE_NAMES = {_SameSite.Lax: "Lax", _SameSite.Strict: "Strict", _SameSite.ExplicitNone: "None"}


@dataclass(frozen=True, kw_only=True)
class TraceContext:
    """W3C trace context of an invocation; empty, because the dev host does not trace."""

    trace_parent: str = ""
    trace_state: str = ""
    attributes: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RetryContext:
    """Retry policy state of an invocation; the dev host applies no retry policy."""

    retry_count: int = 0
    max_retry_count: int = 0
    exception: None = None


@dataclass(frozen=True, kw_only=True)
class InvocationRequest:
    """A request to the worker to call one function."""

    invocation_id: str
    function_id: str
    input_data: list[ParameterBinding]
    trigger_metadata: dict[str, TypedData]
    trace_context: TraceContext = field(default_factory=TraceContext)
    retry_context: RetryContext = field(default_factory=RetryContext)


PROTOS = SimpleNamespace(
    TypedData=TypedData,
    ParameterBinding=ParameterBinding,
    StatusResult=StatusResult,
    BindingInfo=BindingInfo,
    RpcHttp=RpcHttp,
    RpcHttpCookie=RpcHttpCookie,
    **{
        name: type(name, (Message,), {})
        for name in (
            *("WorkerInitResponse", "WorkerMetadata", "FunctionMetadataResponse", "FunctionLoadResponse"),
            *("InvocationResponse", "RpcException", "RpcFunctionMetadata", "RpcRetryOptions", "Timestamp"),
            *("NullableString", "NullableBool", "NullableDouble", "NullableTimestamp"),
        )
    },
)
"""Stands for the runtime's `protos` module."""
