"""The model of the chain where versions are Delta tables."""

from __future__ import annotations

from hypothesis.stateful import invariant, rule

from function_app.config.layouts import Layout
from shared.manifest import Manifest
from tests.crash.chain_model import ChainModel, MarkedChainModel, versions
from tests.crash.data_scenarios import commit, log_of


class TableChainModel(ChainModel):
    """What may happen around the chain if a version is a Delta table, whose commits name its files."""

    layout = Layout(kind="delta", patterns=MarkedChainModel.layout.patterns)

    def __init__(self) -> None:
        super().__init__()
        self.committed: dict[str, list[dict[str, int]]] = {}
        """Version → the files of each version of the table: name and size."""

    def write_marker(self, version: str) -> None:
        """See ChainModel. The commit names the files that exist."""
        there = {name: content for (of, name), content in sorted(self.blobs.items()) if of == version}
        sizes = {name: len(content) for name, content in there.items()}
        every = self.committed.setdefault(version, [])
        before = every[-1] if every else {}
        added = {name: content for name, content in there.items() if before.get(name) != len(content)}
        removed = [name for name, size in before.items() if sizes.get(name) != size]
        self.wait(1)
        self.uploads.append(self.world.put(log_of(len(every)), commit(len(every), added, *removed), version))
        every.append(sizes)

    @invariant()
    def nothing_closes_before_its_marker(self) -> None:
        """Each closing has the files of the commit in its row; later closings have later commits."""
        last: dict[str, int] = {}
        for (version, _), closing in sorted(self.world.ledger.generation_rows.items(), key=lambda one: one[0][1]):
            manifest = Manifest.from_json(self.world.documents.documents[closing.manifest_path])
            number = closing.table_version
            assert number is not None
            stated = self.committed[version.version][number]
            assert stated == {one.name: one.size_bytes for one in manifest.shards}
            assert number >= last.get(version.version, 0)
            last[version.version] = number

    @rule(version=versions)
    def mark(self, version: str) -> None:
        self.write_marker(version)
