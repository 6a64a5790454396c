"""One way to write an ETag."""

from __future__ import annotations

import pytest

from function_app.domain.records import normalise_etag


@pytest.mark.parametrize("etag", ["0x8DB1a", '"0x8DB1A"', 'W/"0x8db1a"', ' "0X8DB1A" '])
def test_all_ways_to_write_an_etag_are_one(etag: str) -> None:
    """Events leave the quotes out, headers have them, and cases differ."""
    assert normalise_etag(etag) == "0X8DB1A"
