"""What can go wrong: answers of the service, and failures of a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class ServiceError(Exception):
    """A refusal in the service's own shape.

    `inner` is the chain of inner codes, outermost first, such as ("Immutable", "JobPropertyImmutable").
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        inner: Sequence[str] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.inner = tuple(inner)
        self.headers = dict(headers or {})

    def body(self) -> dict[str, Any]:
        """Render the error as ARM does."""
        information = []
        nested: dict[str, Any] | None = None
        for code in reversed(self.inner):
            nested = {"code": code, "innerError": nested}
        if nested is not None:
            information.append({"type": "InnerError", "info": {"value": nested}})
        error = {"code": self.code, "message": self.message, "details": [], "additionalInfo": information}
        return {"error": error}


class JobFailure(Exception):
    """The job cannot go on; ends the run as Failed with this code and message."""

    def __init__(self, message: str, *, code: str = "UserError", inner: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.inner = inner

    def error(self) -> dict[str, Any]:
        """Render the failure as the run history does."""
        inner = {"code": self.inner, "innerError": None} if self.inner else None
        return {
            "error": {
                "code": self.code,
                "message": self.message,
                "messageParameters": {},
                "details": [],
                "innerError": inner,
            },
            "componentName": "CommonRuntime",
        }


class RunCanceled(Exception):
    """The run was asked to stop; unwinds the execution."""
