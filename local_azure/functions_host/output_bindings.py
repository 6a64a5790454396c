"""Output bindings that the dev host writes: storage queues and blobs."""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from azure.core.exceptions import ResourceExistsError

from local_azure.functions_host.errors import BindingError
from local_azure.functions_host.functions import Binding, Function
from local_azure.storage_connections import storage_connection

SERVED_OUTPUTS = ("http", "queue", "blob")


@dataclass(frozen=True, kw_only=True)
class OutputWriter:
    """Writes what functions returned or set; a client is made per write, as outputs are rare here."""

    settings: Mapping[str, str]
    message_encoding: Literal["base64", "none"]

    async def write(self, function: Function, response: Any) -> None:
        """Write every queue and blob output of ``response``. Raises what the storage client raises."""
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
                with contextlib.suppress(ResourceExistsError):  # the Functions host makes the queue too
                    await queue.create_queue()
                for body in content:
                    await queue.send_message(self._encode(body))
            return
        container, _, name = str(binding["path"]).partition("/")
        if not name or "{" in name:
            raise BindingError(
                f"function {function.name}: a blob output's path should be container/name, is {binding['path']!r}"
            )
        async with connection.blob_service() as blobs:
            await blobs.get_blob_client(container, name).upload_blob(b"".join(content), overwrite=True)

    def _encode(self, body: bytes) -> str:
        return base64.b64encode(body).decode() if self.message_encoding == "base64" else body.decode()


def _content(value: Any) -> list[bytes]:
    """A single value, or each item of a JSON array."""
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
