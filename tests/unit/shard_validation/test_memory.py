"""Resident memory: validating any shard stays below 150 MB, and the process that decodes Parquet below 250 MB."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.peak_memory import CASES
from tests.support.processes import REPOSITORY, child_environment

MAX_RESIDENT_BYTES = 150_000_000
MAX_DECODER_BYTES = 250_000_000
REJECTED = {"gzip_bomb", "many_faults", "many_faulty_numbers"}
SLOW = {
    "large_examples",
    "many_faults",
    "large_image",
    "long_records",
    "file_of_swelling_examples",
    "parquet_of_images",
}
"""Cases whose memory is bounded by the same code as that of a case in the gate."""

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/status"),
]


def run(*arguments: str) -> str:
    """Run the program that validates one awkward shard; return its output."""
    command = [sys.executable, "-m", "tests.support.peak_memory", *arguments]
    ended = subprocess.run(
        command, cwd=REPOSITORY, env=child_environment(), check=True, capture_output=True, text=True, timeout=300
    )
    return ended.stdout


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[pytest.mark.slow] if case in SLOW else []) for case in CASES]
)
def test_resident_memory(case: str, tmp_path: Path) -> None:
    """Validating an awkward shard takes bounded memory, and gives the right verdict."""
    arguments = [case]
    if case.startswith(("parquet", "file")):
        arguments.append(str(tmp_path / f"train-00000-of-00001.{'parquet' if 'parquet' in case else 'tfrecord'}"))
        run(*arguments)  # the first run writes the file, so that the second has not written anything
    seen = json.loads(run(*arguments))
    assert (case not in REJECTED) == seen["accepted"]
    assert seen["peak_bytes"] <= MAX_RESIDENT_BYTES
    assert seen["decoder_bytes"] <= MAX_DECODER_BYTES
    assert ("parquet" in case) == (seen["decoder_bytes"] > 0)
