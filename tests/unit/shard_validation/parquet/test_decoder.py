"""The process that decodes Parquet: what it has, what becomes of a shard when it dies or hangs, when it ends."""

from __future__ import annotations

import io
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from local_azure.processes import wait_until
from shard_validation import DataRequirements, ReasonCode, ShardVerdict, SourceUnavailableError, validate_shard
from shard_validation.parquet import decoder, decoding
from shared.manifest import FeatureSpec
from tests.support.processes import REPOSITORY, child_environment
from tests.support.shards import BytesSource
from tests.unit.shard_validation.parquet.dying_decoder import DEADLY_COLUMN

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]
LABEL = FeatureSpec(name="label", kind="int64", maximum=99)
PARENT = """
import os, signal, sys
from shard_validation.parquet.decoder import Decoder
print(Decoder().pid, flush=True)
sys.stdin.read()
"""


def shard(columns: dict[str, Any], **options: Any) -> BytesSource:
    """Return a Parquet shard."""
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer, **options)
    return BytesSource(buffer.getvalue(), "train-00000-of-00001.parquet")


SHARD = shard({"label": list(range(100)), DEADLY_COLUMN: ["a"] * 100}, row_group_size=40)


def validate(source: BytesSource = SHARD) -> ShardVerdict:
    """Validate a shard."""
    return validate_shard(source, DataRequirements(features=(LABEL,)))


@pytest.fixture
def only_decoder() -> Iterator[decoder.Decoder]:
    """The one idle decoder."""
    decoder.end_idle_decoders()
    validate()
    (pid,) = decoder.idle_decoders()
    taken = decoder.take_decoder()
    assert pid == taken.pid
    decoder.give_back(taken)
    yield taken
    decoder.end_idle_decoders()


def test_it_is_used_for_shard_after_shard(only_decoder: decoder.Decoder) -> None:
    """Starting it costs as much as validating megabytes."""
    assert validate().accepted
    assert not validate(shard({"label": [100]})).accepted
    assert not validate(BytesSource(SHARD.content[:50] + SHARD.content[60:], SHARD.name)).accepted
    assert [only_decoder.pid] == decoder.idle_decoders()


def test_it_has_no_secrets_and_bounded_memory(only_decoder: decoder.Decoder, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has only those settings that start Python; it writes no file and no core."""
    only_decoder.end()
    monkeypatch.setenv("DataStorage", "AccountKey=secret")
    assert validate().accepted
    (pid,) = decoder.idle_decoders()
    environment = Path(f"/proc/{pid}/environ").read_text(encoding="utf-8")
    assert {line.partition("=")[0] for line in environment.strip("\0").split("\0")} <= {
        *decoder.KEPT_SETTINGS,
        *decoder.SETTINGS,
        "PYTHONPATH",
    }
    assert "secret" not in environment
    limits = dict(
        line.rsplit(None, 3)[:2] for line in Path(f"/proc/{pid}/limits").read_text().splitlines() if "bytes" in line
    )
    assert (True, "0", "0") == (
        limits["Max address space"].isdigit(),
        limits["Max core file size"],
        limits["Max file size"],
    )


def test_one_that_dies_while_it_is_idle_is_replaced(only_decoder: decoder.Decoder) -> None:
    """The next shard gets a new one."""
    os.kill(only_decoder.pid, signal.SIGKILL)
    os.waitid(os.P_PID, only_decoder.pid, os.WEXITED | os.WNOWAIT)
    assert validate().accepted
    assert [only_decoder.pid] != decoder.idle_decoders()


def test_one_that_hangs_is_replaced(only_decoder: decoder.Decoder) -> None:
    """It is asked, and gives no heartbeat: it is ended, and the shard goes to a new one."""
    only_decoder.silence_s = 0.1
    os.kill(only_decoder.pid, signal.SIGSTOP)
    assert validate().accepted
    assert [only_decoder.pid] != decoder.idle_decoders()
    assert not Path(f"/proc/{only_decoder.pid}").exists()


def test_pages_that_kill_it_are_a_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason names row group and column; the other columns are checked by a new one."""
    decoder.end_idle_decoders()
    monkeypatch.setattr(decoder, "PROGRAM", "tests.unit.shard_validation.parquet.dying_decoder")
    columns = {DEADLY_COLUMN: ["a"] * 100, "label": [*range(99), 100]}
    reasons = validate(shard(columns, row_group_size=40)).reasons
    decoder.end_idle_decoders()
    assert [ReasonCode.PARQUET_PAGE_CORRUPT, ReasonCode.VALUE_OUT_OF_RANGE] == [reason.code for reason in reasons]
    assert f"row group 1 and column {DEADLY_COLUMN}" in reasons[0].message
    assert f"it ended with signal {int(signal.SIGSEGV)}" in reasons[0].message
    assert 99 == reasons[1].record_index


def test_without_it_there_is_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shard is not at fault where no process can be started; the validation is tried again."""
    decoder.end_idle_decoders()
    monkeypatch.setattr(decoder, "PROGRAM", "tests.support.no_such_program")
    with pytest.raises(SourceUnavailableError, match="ended with status 1"):
        validate()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b'"text"', "not an object"),
        (b"{", "not JSON"),
        (b'{"read": [-1, 5]}', "a request to read"),
        (b'{"read": [0, 999999999999]}', "at once"),
        (b'{"faults": [[{"code": "invented"}, 1]]}', "violates the protocol"),
        (b'{"statistics": {"surplus": 1}}', "violates the protocol"),
    ],
)
def test_what_it_says_is_checked(answer: bytes, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages may take a decoder over: what it says then is neither executed nor believed."""
    decoder.end_idle_decoders()
    monkeypatch.setattr(decoder.Decoder, "_send", lambda *_: None)
    pieces: list[bytes] = []

    def take(_: decoder.Decoder, length: int, __: object) -> bytes:
        if not pieces:
            pieces.extend([decoder.HEAD.pack(len(answer)), answer])
        return pieces.pop(0)[:length]

    real = decoder.Decoder()
    decoder.give_back(real)
    monkeypatch.setattr(decoder.Decoder, "_take", take)
    monkeypatch.setattr(decoder, "Decoder", lambda: real)
    (reason, *_) = validate().reasons
    assert words in reason.message


def test_it_ends_with_the_process_that_started_it() -> None:
    """Neither the way in which the process ends nor the decoder's work matters."""
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT],
        cwd=REPOSITORY,
        env=child_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert Path(f"/proc/{pid}").exists()
        parent.kill()
    wait_until(lambda: not Path(f"/proc/{pid}/exe").exists(), what="the decoder ends")


def test_rows_that_take_more_memory_than_there_is() -> None:
    """A dictionary repeats a large value: fewer rows are decoded at a time, and no process grows."""
    values = pa.DictionaryArray.from_arrays(pa.array([0] * 400, pa.int32()), pa.array([b"x" * (1 << 20)]))
    source = shard({"label": list(range(400)), "text": values}, row_group_size=400)
    text = FeatureSpec(name="text", kind="bytes")
    verdict = validate_shard(source, DataRequirements(features=(text,)))
    assert ((), 400) == (verdict.reasons, verdict.statistics.features["text"].num_present)
    assert len(source.content) < 1 << 20


def test_an_answer_without_room_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """If memory is short, the result is dropped; the next answer belongs to the next request."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for content in (b"a" * 100_000, b"second"):
            theirs.sendall(decoder.HEAD.pack(len(content)) + content)
        connection = decoding.Connection(ours)
        with monkeypatch.context() as patch:
            patch.setattr(decoding, "bytearray", no_room_above(decoder.HEAD.size), raising=False)
            with pytest.raises(MemoryError):
                connection.receive()
        assert b"second" == connection.receive()


def no_room_above(size: int) -> Any:
    """Return a bytearray type for small sizes."""

    def small(length: int) -> bytearray:
        if length > size:
            raise MemoryError
        return bytearray(length)

    return small
