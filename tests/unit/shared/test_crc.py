"""CRC32C of a file, and of contents in a row whose own CRCs are known."""

from __future__ import annotations

from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from shared.crc import combined_crc32c, crc32c_of_file


def test_check_value(tmp_path: Path) -> None:
    """A file of the digits 1 to 9 has the CRC32C that every description of it states."""
    path = tmp_path / "digits"
    path.write_bytes(b"123456789")
    assert "e3069283" == crc32c_of_file(path)


@given(first=st.binary(max_size=50), second=st.binary(max_size=10_000))
def test_combined(first: bytes, second: bytes) -> None:
    """Two CRCs and a length give the CRC of both contents in a row."""
    assert crc32c(first + second) == combined_crc32c(crc32c(first), crc32c(second), len(second))


@pytest.mark.parametrize("length", [4095, 4096, 65_535, 65_536, 110_000, 1 << 20, (1 << 24) + 4097])
def test_combined_with_long_contents(length: int) -> None:
    """Lengths of whole blocks, of one byte more or less, and of several digits are combined as well."""
    second = bytes(range(256)) * (length // 256) + bytes(length % 256)
    assert crc32c(b"first" + second) == combined_crc32c(crc32c(b"first"), crc32c(second), length)
