"""Limits: the most that anything read from a shard may ask for, before it is given."""

from __future__ import annotations

from dataclasses import dataclass, fields

from shared.example_schema import SchemaError


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Every bound, with a default that keeps a process below 150 MB of resident memory.

    Raising ``max_example_bytes``, ``max_decoded_image_bytes`` or ``max_page_bytes`` raises that ceiling by about
    four times as much.
    """

    max_shard_bytes: int = 4000 * 50_000 << 20
    """A block blob's own limit: 50,000 blocks of 4,000 MiB."""
    max_record_bytes: int = (2 << 30) - 1
    """protobuf cannot parse more."""
    max_example_bytes: int = 16 << 20
    """Held in memory, about three times over while it is checked."""
    max_unknown_bytes: int = 64 << 10
    """Of one record; readers skip what they do not know, so a little of it is no fault."""
    max_parsed_bytes: int = 48 << 20
    """Memory that the parsed example may take: many tiny values take up to 30 times their bytes."""
    max_inflated_bytes: int = 1 << 40
    max_inflation: int = 250
    """Times the compressed size. Deflate reaches 1,032; images and tensors stay below 10."""
    max_image_pixels: int = 1 << 26
    """By the header: 67 million, 200 MB once the training decodes it."""
    max_decoded_image_bytes: int = 64 << 20
    """That decoding one image may take here."""
    max_footer_bytes: int = 4 << 20
    max_columns: int = 2_000
    max_row_groups: int = 100_000
    max_page_bytes: int = 16 << 20
    """Held, compressed or not; larger pages of texts and bytes are read in pieces, each value within this limit."""
    max_nested_values: int = 2_000_000
    """Of one nested column in one row group."""
    max_reasons: int = 50
    """Of one shard; further ones are only counted."""

    def __post_init__(self) -> None:
        """Refuse what is no positive number. Raises SchemaError naming the field."""
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise SchemaError(f"limits.{field.name} should be a positive whole number, was {value!r}")
