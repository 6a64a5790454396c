"""One way to write an ETag: events, headers and SDKs quote it or not, in upper or lower case."""

from __future__ import annotations


def normalise_etag(etag: str) -> str:
    """Return an ETag without quotes and weakness mark, in upper case.

    Fit to compare and to store, not to be sent back: services compare the text that they gave out.
    """
    return etag.strip().removeprefix("W/").strip('"').upper()
