from __future__ import annotations

import pytest

from local_azure.event_grid.access_log import StorageWrite, parse_line

PREFIX = '127.0.0.1 - - [20/Nov/2026:11:37:09 +0000] "'


def _line(method: str, target: str, status: int) -> str:
    return f'{PREFIX}{method} {target} HTTP/1.1" {status} -'


@pytest.mark.parametrize(
    ("method", "target", "status", "api"),
    [
        ("PUT", "/data/c/a", 201, "PutBlob"),
        ("PUT", "/data/c/a?sv=2026&sig=x%2F", 201, "PutBlob"),
        ("PUT", "/data/c/a?comp=blocklist&timeout=3", 201, "PutBlockList"),
        ("PUT", "/data/c/a", 202, "CopyBlob"),
        ("DELETE", "/data/c/a", 202, "DeleteBlob"),
    ],
)
def test_successful_writes_are_told_apart(method: str, target: str, status: int, api: str) -> None:
    """By method, operation and status; a signature in the query does not matter."""
    write = parse_line(_line(method, target, status), "data")

    assert write is not None
    assert (api, "c", "a") == (write.api, write.container, write.blob)


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [
        ("PUT", "/data/c/a?comp=block&blockid=MDAw", 201),
        ("PUT", "/data/c/a", 409),
        ("PUT", "/data/c/a", 412),
        ("PUT", "/data/c/a?comp=metadata", 200),
        ("PUT", "/data/c/a?comp=snapshot", 201),
        ("PUT", "/data/c/a?comp=lease", 201),
        ("PUT", "/data/c/a?comp=appendblock", 201),
        ("DELETE", "/data/c/a?snapshot=2026", 202),
        ("PUT", "/data/c?restype=container", 201),
        ("DELETE", "/data/c?restype=container", 202),
        ("PUT", "/other/c/a", 201),
        ("PUT", "/database/c/a", 201),
        ("PUT", "/data/c/", 201),
        ("HEAD", "/data/c/a", 200),
        ("GET", "/data/c/a", 200),
    ],
)
def test_everything_else_is_no_write(method: str, target: str, status: int) -> None:
    """Reads, failures, blocks, leases, containers, and other accounts."""
    assert parse_line(_line(method, target, status), "data") is None


@pytest.mark.parametrize(
    "line", ["", "Azurite Blob service is successfully listening at http://127.0.0.1:1", '"PUT x']
)
def test_other_lines_are_passed_over(line: str) -> None:
    """Azurite's own messages and noise."""
    assert parse_line(line, "data") is None


def test_a_name_is_decoded_and_encoded_as_the_sdk_does() -> None:
    """Whatever the client left unencoded, the url is that of the SDK's blob client."""
    write = parse_line(_line("PUT", "/data/c/a%20b/(1)+%2520%C3%A9", 201), "data")

    assert StorageWrite(api="PutBlob", container="c", blob="a b/(1)+%20é") == write
    assert "c/a%20b/%281%29%2B%2520%C3%A9" == write.encoded_path
