"""Rows whose values stand in a dictionary too large to be held: noted, and read with the dictionary in the end."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import accumulate

MAX_ROWS = 1_000_000
"""That refer to such a dictionary, and values in it; writers give it up at once."""


class TooManyRowsError(ValueError):
    """More of them than are noted."""


class DeferredRows:
    """Which rows have which value of a dictionary."""

    def __init__(self, num_values: int) -> None:
        """Begin. Raises TooManyRowsError for more values than `MAX_ROWS`."""
        if num_values > MAX_ROWS:
            raise TooManyRowsError(f"{num_values} values")
        self.num_values = num_values
        self._indices = array("I")
        self._rows = array("I")

    def note(self, row: int, index: int) -> None:
        """Note a row. Raises IndexError for a value that the dictionary has not, and TooManyRowsError."""
        if index >= self.num_values:
            raise IndexError(f"indices should be below {self.num_values}, one was {index}")
        if len(self._rows) >= MAX_ROWS:
            raise TooManyRowsError(f"more than {MAX_ROWS} rows")
        self._indices.append(index)
        self._rows.append(row)

    def by_value(self) -> Iterator[array[int]]:
        """Yield the rows of each value in turn."""
        counts = array("I", bytes(4 * (self.num_values + 1)))
        for index in self._indices:
            counts[index + 1] += 1
        starts = array("I", accumulate(counts))
        ends, ordered = starts[:], array("I", bytes(4 * len(self._rows)))
        for index, row in zip(self._indices, self._rows, strict=True):
            ordered[ends[index]] = row
            ends[index] += 1
        for index in range(self.num_values):
            yield ordered[starts[index] : ends[index]]
