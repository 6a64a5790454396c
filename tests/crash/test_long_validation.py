"""A long validation whose process is killed within a slice: the next process continues it, on real storage."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from azure.storage.blob import BlobServiceClient

from function_app.adapters.connections import ConnectionSettings, StorageConnection
from function_app.adapters.tables import TableLedger
from function_app.config.pipeline_files import load_pipelines
from function_app.domain.records import DatasetVersion
from local_azure.guard import die_with_parent
from shard_validation import encode_example, validate_shard
from shared.record_framing import frame_record
from tests.support.long_validation_process import CHUNK_BYTES, NUM_CHUNKS
from tests.support.processes import REPOSITORY, child_environment
from tests.support.shards import BytesSource
from tests.support.world import CLUSTERS, PIPELINE, SIZES
from tests.unit.function_app.config.test_settings import REQUIRED

pytestmark = pytest.mark.azurite

NAME = "train-00000-of-00002.tfrecord"
PATH = f"digits/v1/{NAME}"
CONTENT = b"".join(
    frame_record(encode_example({"label": 12 if i in (3, 700) else i % 10, "image": bytes(3000)}))
    for i in range(1000)
)
"""3 MB, about six slices; one label in the first slice and one in the last are out of range."""


@dataclass(frozen=True)
class Accounts:
    """The connection strings of the function app's two accounts."""

    host: str
    data: str


@pytest.fixture
def accounts(unused_accounts: Iterator[str]) -> Accounts:
    """Accounts, one of which has the shard, which is not validated yet."""
    host, data = next(unused_accounts), next(unused_accounts)
    with BlobServiceClient.from_connection_string(data) as service:
        service.create_container("datasets").upload_blob(PATH, CONTENT)
    return Accounts(host, data)


def environment(accounts: Accounts, tmp_path: Path) -> dict[str, str]:
    """The function app's settings."""
    (tmp_path / "pipelines").mkdir(exist_ok=True)
    (tmp_path / "pipelines" / "digits.yaml").write_text(
        PIPELINE.replace(
            "kind: float, shape: [2, 2, 1]", "kind: bytes, encoding: raw, dtype: uint8, shape: [50, 60, 1]"
        )
    )
    (tmp_path / "pipelines" / "clusters.yaml").write_text(CLUSTERS)
    return child_environment(
        **REQUIRED,
        AzureWebJobsStorage=accounts.host,
        DataStorage=accounts.data,
        LANDFALL_PIPELINES_DIR=str(tmp_path / "pipelines"),
        LANDFALL_CLUSTER_SIZES=",".join(f"{name}={size}" for name, size in SIZES.items()),
        LANDFALL_NOTIFICATION_TOPIC_ENDPOINT="http://127.0.0.1:9/topic",
        LANDFALL_WEBHOOK_PEOPLE="http://127.0.0.1:9/hook",
    )


def start(settings: dict[str, str]) -> subprocess.Popen[str]:
    """Start a process that validates the shard, one slice for each line of input."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.long_validation_process", PATH],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=settings,
        cwd=REPOSITORY,
        preexec_fn=die_with_parent,  # noqa: PLW1509 (one prctl call, nothing that could take a lock)
    )


def kill_within_slice(process: subprocess.Popen[str], number: int) -> list[str]:
    """Let a process finish some slices, and kill it once it reads for the next one; return its output."""
    said: list[str] = []
    if process.stdin is None or process.stdout is None:
        raise ValueError("the process should have pipes")
    for _ in range(number + 1):  # the first is the document that says that this validation has begun
        while (line := process.stdout.readline().strip()) != "slice":
            said.append(line)
        process.stdin.write("\n")
        process.stdin.flush()
    while not (line := process.stdout.readline()).startswith("read"):
        said.append(line)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return said


def verdict_on_record(accounts: Accounts) -> dict[str, Any] | None:
    """Return the ledger's verdict on the shard."""
    settings = ConnectionSettings(name="AzureWebJobsStorage", connection_string=accounts.host)
    with contextlib.closing(StorageConnection(settings)) as storage:
        row = TableLedger(storage).shard(DatasetVersion(dataset="digits", version="v1"), "train", 0)
    return None if row is None else {"crc32c": row.crc32c, "reasons": row.reasons, "statistics": row.statistics}


def test_a_killed_process_is_gone_on_with(accounts: Accounts, tmp_path: Path) -> None:
    """It is killed twice within a slice: nothing that was stored is read again, and the verdict is the usual one."""
    settings = environment(accounts, tmp_path)
    for num_slices in (2, 3):
        process = start(settings)
        kill_within_slice(process, num_slices)
        assert (-signal.SIGKILL, None) == (process.returncode, verdict_on_record(accounts))
    said, _ = start(settings).communicate("\n" * 100)
    *offsets, last = said.split("\n")[:-1]
    read = [int(line.split()[1]) for line in offsets if line.startswith("read")]
    assert ("done", 0) == (last, read[0])  # the first bytes show the file's type
    assert min(read[1:]) >= 3 * (NUM_CHUNKS - 2) * CHUNK_BYTES
    whole = validate_shard(
        BytesSource(CONTENT, NAME), load_pipelines(tmp_path / "pipelines")["digits"].data.requirements()
    )
    expected = {"crc32c": whole.crc32c, "reasons": whole.reasons, "statistics": whole.statistics.to_json()}
    assert 2 == len(whole.reasons)
    assert expected == verdict_on_record(accounts)
