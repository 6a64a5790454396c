"""Limits on the cost of untrusted YAML, for loaders of PyYAML."""

from __future__ import annotations

from typing import Any

import yaml

MAX_DEPTH = 20


class BoundedNodes:
    """Mixin: refuses aliases, whose expansion is not bounded, and deep nesting."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        """See yaml.composer. Raises yaml.YAMLError."""
        loader: Any = self
        if loader.check_event(yaml.AliasEvent):
            event = loader.peek_event()
            raise yaml.YAMLError(f"aliases are not allowed, {place_of(event.start_mark)}")
        if self.depth >= MAX_DEPTH:
            raise yaml.YAMLError(f"nested more than {MAX_DEPTH} levels deep")
        self.depth += 1
        node = super().compose_node(parent, index)  # type: ignore[misc]
        self.depth -= 1
        return node


def place_of(mark: Any) -> str:
    """Return line and column of a mark, counted from 1."""
    return f"line {mark.line + 1}, column {mark.column + 1}"
