"""Plain stand-ins for the messages that the Functions host and the Python worker exchange.

`azure-functions-runtime` never imports protobuf: its caller hands it a module whose classes behave like
messages. The names and numbers are those of FunctionRpc.proto, https://github.com/Azure/azure-functions-language-worker-protobuf.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, ClassVar


class Message:
    """A message whose unset fields read as None, as the runtime expects of protobuf."""

    choices: ClassVar[tuple[str, ...]] = ()
    """The fields of which only one is set (protobuf's *oneof*)."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)

    def __getattr__(self, name: str) -> Any:
        # The runtime tells a message from a module by asking it for `TypedData`.
        if name.startswith("__") or name == "TypedData":
            raise AttributeError(name)
        return None

    def WhichOneof(self, _group: str) -> str | None:  # noqa: N802 (protobuf's name)
        """The name of the one field that is set, or None."""
        return next((name for name in self.choices if name in self.__dict__), None)


class TypedData(Message):
    """A value on its way into or out of a function."""

    choices = ("string", "json", "bytes", "stream", "http", "int", "double", "model_binding_data")


class ParameterBinding(Message):
    """A value for one of a function's parameters."""

    choices = ("data",)


class StatusResult(Message):
    """How a request to the worker ended."""

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


setattr(_SameSite, "None", 0)  # a keyword again


class RpcHttpCookie(Message):
    """One cookie of a response."""

    SameSite = _SameSite


SAME_SITE_NAMES = {_SameSite.Lax: "Lax", _SameSite.Strict: "Strict", _SameSite.ExplicitNone: "None"}


@dataclass(frozen=True, kw_only=True)
class TraceContext:
    """W3C trace context of an invocation; empty, as nothing traces on this machine."""

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
    """Ask the worker to call one function."""

    invocation_id: str
    function_id: str
    input_data: list[ParameterBinding]
    trigger_metadata: dict[str, TypedData]
    trace_context: TraceContext = field(default_factory=TraceContext)
    retry_context: RetryContext = field(default_factory=RetryContext)


def _message_class(name: str) -> type[Message]:
    return type(name, (Message,), {})


PROTOS = SimpleNamespace(
    TypedData=TypedData,
    ParameterBinding=ParameterBinding,
    StatusResult=StatusResult,
    BindingInfo=BindingInfo,
    RpcHttp=RpcHttp,
    RpcHttpCookie=RpcHttpCookie,
    **{
        name: _message_class(name)
        for name in (
            *("WorkerInitResponse", "WorkerMetadata", "FunctionMetadataResponse", "FunctionLoadResponse"),
            *("InvocationResponse", "RpcException", "RpcFunctionMetadata", "RpcRetryOptions", "Timestamp"),
            *("NullableString", "NullableBool", "NullableDouble", "NullableTimestamp"),
        )
    },
)
"""The `protos` module that the runtime is given."""
