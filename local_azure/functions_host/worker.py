"""Microsoft's worker runtime, indexed once and then asked to call functions."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import threading
from collections.abc import Coroutine, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

from local_azure.functions_host.errors import DevHostError
from local_azure.functions_host.functions import Function, make_function
from local_azure.functions_host.indexing_report import describe_failure, describe_no_functions
from local_azure.functions_host.worker_messages import PROTOS, InvocationRequest, StatusResult

T = TypeVar("T")


class Worker:
    """Runs the app in a thread with an event loop of its own, so that an app that blocks cannot stop the host.

    There can be one per process: the runtime keeps its index in module globals.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="worker", daemon=True)
        self._thread.start()

    async def index(self, settings: Mapping[str, str]) -> list[Function]:
        """Import the app and return its functions. Raises DevHostError saying why there are none."""
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
        runtime_log.setLevel(logging.CRITICAL + 1)  # it logs what the report says better, with a stack trace
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
            # Let through, it would end the worker's thread and leave every later invocation without an answer.
            return PROTOS.InvocationResponse(result=_failure(f"SystemExit: {error}: the function ended the process"))

    def _prepare_process(self) -> None:
        os.environ.pop("CONTAINER_NAME", None)  # it would make the runtime believe that it is in Azure
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
