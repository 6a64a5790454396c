"""An in-memory Azure ML workspace for the tests of `landfall publish`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cli.deploy.clusters import Choice, WantedCluster
from cli.deploy.workspace import PublishedCluster
from cli.errors import CliError


class MemoryWorkspace:
    """Stores what is registered; each method returns whether it registered something new."""

    def __init__(self, sizes: Mapping[str, str] | None = None) -> None:
        """Set the VM sizes of clusters that exist before publishing."""
        self.sizes = dict(sizes or {})
        self.codes: dict[tuple[str, str], list[str]] = {}
        self.commits: dict[tuple[str, str], str | None] = {}
        self.environments: dict[tuple[str, str], str] = {}
        self.conda_files: dict[tuple[str, str], str | None] = {}
        self.files: dict[tuple[str, str], list[str]] = {}
        self.datastores: dict[str, tuple[str, str]] = {}
        self.clusters: dict[str, WantedCluster] = {}

    def ensure_code(self, name: str, version: str, folder: Path, *, commit: str | None) -> bool:
        """Store the paths of the folder's files, and the commit."""
        if (name, version) in self.codes:
            return False
        self.codes[name, version] = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
        self.commits[name, version] = commit
        return True

    def ensure_environment(self, name: str, version: str, *, image: str, conda_file: str | None = None) -> bool:
        """Store the image; refuse a different one under the same name."""
        if (name, version) in self.environments:
            if self.environments[name, version] != image:
                raise CliError(f"environment {name}:{version} has another image than {image}")
            return False
        self.environments[name, version] = image
        self.conda_files[name, version] = conda_file
        return True

    def ensure_files(self, name: str, version: str, files: Mapping[str, Path]) -> bool:
        """Store the names of the files."""
        is_new = (name, version) not in self.files
        self.files.setdefault((name, version), sorted(files))
        return is_new

    def ensure_datastore(self, name: str, *, account: str, container: str) -> bool:
        """Store the account and the container."""
        is_new = name not in self.datastores
        self.datastores.setdefault(name, (account, container))
        return is_new

    def ensure_cluster(self, wanted: WantedCluster) -> PublishedCluster:
        """Store the cluster, with the first of its sizes."""
        is_new = wanted.name not in self.clusters and wanted.name not in self.sizes
        self.clusters.setdefault(wanted.name, wanted)
        size = self.sizes.get(wanted.name, wanted.cluster.sizes[0].vm_size)
        return PublishedCluster(created=is_new, choice=Choice(vm_size=size))
