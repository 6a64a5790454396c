"""An Azure ML workspace in memory, for what `landfall publish` does with one."""

from __future__ import annotations

from pathlib import Path

from cli.publish.workspace import Cluster


class MemoryWorkspace:
    """Keeps what was registered; each method returns whether it had to."""

    def __init__(self) -> None:
        self.codes: dict[tuple[str, str], list[str]] = {}
        self.environments: dict[tuple[str, str], str] = {}
        self.datastores: dict[str, tuple[str, str]] = {}
        self.clusters: dict[str, Cluster] = {}

    def ensure_code(self, name: str, version: str, folder: Path) -> bool:
        """Keep the paths of the folder's files."""
        if (name, version) in self.codes:
            return False
        self.codes[name, version] = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
        return True

    def ensure_environment(self, name: str, version: str, *, image: str) -> bool:
        """Keep the image."""
        if (name, version) in self.environments:
            return False
        self.environments[name, version] = image
        return True

    def ensure_datastore(self, name: str, *, account: str, container: str) -> bool:
        """Keep account and container."""
        is_new = name not in self.datastores
        self.datastores.setdefault(name, (account, container))
        return is_new

    def ensure_cluster(self, cluster: Cluster) -> bool:
        """Keep the cluster."""
        is_new = cluster.name not in self.clusters
        self.clusters.setdefault(cluster.name, cluster)
        return is_new
