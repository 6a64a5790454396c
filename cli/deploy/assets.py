"""Publishes everything that a submission refers to, and returns the app settings that refer to it.

The code asset holds `shared`, `training_job` and the users' own scripts. Its version is the digest of its files, so
that the same code is never uploaded twice and a change of the documentation makes no new asset.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from cli.deploy.clusters import WantedCluster
from cli.deploy.workspace import PublishedCluster, WorkspaceId
from cli.errors import CliError
from function_app.config.clusters import CLUSTER_SIZES
from function_app.config.environments import NAME as OWN_ENVIRONMENT
from function_app.config.environments import OwnEnvironment
from function_app.config.own_files import NAME as OWN_FILES
from function_app.config.own_files import OwnFiles, digest_of
from shared import asset_version

ENVIRONMENT_NAME = CODE_NAME = "landfall-training"
DATASTORES = {"DATA": "landfall_datasets", "STATE": "landfall_state", "RUNS": "landfall_runs"}
PACKAGES = ("shared", "training_job")
LEFT_OUT = ("environment", "__pycache__")
"""Folders in the packages that the code asset leaves out: the environment is an asset by itself."""
SCRIPTS = "scripts"
"""Folder of users' own training scripts, beside the pipeline files."""
MAX_FILE_BYTES = 10 << 20
DIGEST_CHARS = 16
GIT_WITHIN_S = 30
DIRTY = "-dirty"
MAX_NAMED = 5
Say = Callable[[str], None]


class Workspace(Protocol):
    """The operations of a workspace that publishing needs.

    Methods for assets return whether they created something.
    """

    def ensure_code(self, name: str, version: str, folder: Path, *, commit: str | None) -> bool:
        """Register a folder as a code asset, with the commit that it was made from as a tag."""
        ...

    def ensure_environment(self, name: str, version: str, *, image: str, conda_file: str | None = None) -> bool:
        """Register an image, and what is installed on it, as an environment."""
        ...

    def ensure_files(self, name: str, version: str, files: Mapping[str, Path]) -> bool:
        """Upload files by their names, and register their folder as a data asset."""
        ...

    def ensure_datastore(self, name: str, *, account: str, container: str) -> bool:
        """Register a container under a name."""
        ...

    def ensure_cluster(self, wanted: WantedCluster) -> PublishedCluster:
        """Create a cluster."""
        ...


@dataclass(frozen=True, kw_only=True)
class Containers:
    """Where data, state and runs are. An account of None leaves its datastores unregistered."""

    data_account: str | None
    host_account: str | None
    data: str = "datasets"
    state: str = "landfall"
    runs: str = "runs"

    def by_datastore(self) -> dict[str, tuple[str, str]]:
        """Return datastore name → (account, container)."""
        found = {
            DATASTORES["DATA"]: (self.data_account, self.data),
            DATASTORES["STATE"]: (self.host_account, self.state),
            DATASTORES["RUNS"]: (self.host_account, self.runs),
        }
        return {name: (account, container) for name, (account, container) in found.items() if account}


@dataclass(frozen=True, kw_only=True)
class Publication:
    """What to publish, and where."""

    root: Path
    """The clone."""
    pipelines: Path
    identity: WorkspaceId
    image: str
    """Training image, by digest."""
    containers: Containers
    clusters: Iterable[WantedCluster]
    environments: Iterable[OwnEnvironment] = ()
    """Those that the pipelines define."""
    files: Iterable[OwnFiles] = ()
    """Those that the pipelines define."""
    environment_version: str | None = None
    """Version of the environment asset; None for a digest of the image's name."""


def publish(publication: Publication, workspace: Workspace, say: Say) -> dict[str, str]:
    """Register what is missing and return the app settings that refer to it."""
    identity = publication.identity
    environment = _publish_environment(publication, workspace, say)
    for own in publication.environments:
        version = own.version(environment)
        image = own.image or publication.image
        created = workspace.ensure_environment(OWN_ENVIRONMENT, version, image=image, conda_file=own.conda_file)
        _report(say, f"environment {OWN_ENVIRONMENT}:{version}", created=created)
    for files in publication.files:
        _publish_files(files, workspace, say)
    code = _publish_code(publication, workspace, say)
    for name, (account, container) in publication.containers.by_datastore().items():
        created = workspace.ensure_datastore(name, account=account, container=container)
        _report(say, f"datastore {name}", created=created)
    sizes = {wanted.name: _publish_cluster(wanted, workspace, say) for wanted in publication.clusters}
    return {
        "LANDFALL_SUBSCRIPTION_ID": identity.subscription,
        "LANDFALL_RESOURCE_GROUP": identity.resource_group,
        "LANDFALL_WORKSPACE": identity.workspace,
        "LANDFALL_ENVIRONMENT_ID": identity.asset("environments", ENVIRONMENT_NAME, environment),
        "LANDFALL_CODE_ID": identity.asset("codes", CODE_NAME, code),
        **{f"LANDFALL_{key}_DATASTORE": name for key, name in DATASTORES.items()},
        CLUSTER_SIZES: ",".join(f"{name}={size}" for name, size in sizes.items()),
    }


def _publish_files(files: OwnFiles, workspace: Workspace, say: Say) -> None:
    """Publish a pipeline's files. Raises CliError if one has changed since its digest was made."""
    if changed := [one.name for one in files.files if digest_of(one.path) != one.digest]:
        raise CliError(f"{', '.join(changed[:5])}: changed while it was published; run landfall publish again")
    created = workspace.ensure_files(OWN_FILES, files.version, {one.name: one.path for one in files.files})
    _report(say, f"files {OWN_FILES}:{files.version} ({len(files.files)} files)", created=created)


def _publish_cluster(wanted: WantedCluster, workspace: Workspace, say: Say) -> str:
    """Return the VM size of the cluster, and report it with the reasons against the preferred ones."""
    published = workspace.ensure_cluster(wanted)
    did = "created" if published.created else "exists already"
    say(f"cluster {wanted.name}: {did} with {published.choice.words}")
    return published.choice.vm_size


def _publish_environment(publication: Publication, workspace: Workspace, say: Say) -> str:
    version = publication.environment_version or environment_version(publication.image)
    created = workspace.ensure_environment(ENVIRONMENT_NAME, version, image=publication.image)
    _report(say, f"environment {ENVIRONMENT_NAME}:{version}", created=created)
    return version


def environment_version(image: str) -> str:
    """Return the version of an environment: a digest of the image's name, which holds the digest of its content."""
    return hashlib.sha256(image.encode()).hexdigest()[:DIGEST_CHARS]


def _publish_code(publication: Publication, workspace: Workspace, say: Say) -> str:
    files = collect_code(publication.root, publication.pipelines)
    version = code_version(files)
    with tempfile.TemporaryDirectory(prefix="landfall-") as temporary:
        folder = Path(temporary) / CODE_NAME  # the client names the upload after the folder
        copy_code(files, folder)
        commit = commit_of(publication.root, files)
        created = workspace.ensure_code(CODE_NAME, version, folder, commit=commit)
    _report(say, f"code {CODE_NAME}:{version} ({len(files)} files)", created=created)
    if commit and commit.endswith(DIRTY):
        changed = not_in_commit(publication.root, commit.removesuffix(DIRTY), files)
        more = f" and {len(changed) - MAX_NAMED} more" if len(changed) > MAX_NAMED else ""
        say(f"  passports will name the commit {commit}: it does not have {', '.join(changed[:MAX_NAMED])}{more}")
    return version


def collect_code(root: Path, pipelines: Path) -> dict[str, Path]:
    """Return path in the code asset → file. Raises CliError for a link and for a file too large to be code."""
    files: dict[str, Path] = {}
    for folder, target in [*((root / package, package) for package in PACKAGES), (pipelines / SCRIPTS, SCRIPTS)]:
        for path in sorted(folder.rglob("*")):
            inside, wanted = path.relative_to(folder), target == SCRIPTS or path.suffix == ".py"
            if path.is_file() and wanted and not set(inside.parts) & set(LEFT_OUT):
                files[f"{target}/{inside.as_posix()}"] = _checked(path)
    return files


def code_version(files: Mapping[str, Path]) -> str:
    """Return the version of the code asset: the job contracts that it speaks, and a digest of paths and contents."""
    sha = hashlib.sha256()
    for name in sorted(files):
        content = files[name].read_bytes()
        sha.update(f"{name}\0{len(content)}\0".encode() + content)
    return asset_version(sha.hexdigest()[:DIGEST_CHARS])


def commit_of(root: Path, files: Mapping[str, Path]) -> str | None:
    """Return the commit of a clone, with ``-dirty`` appended if these files differ from it.

    None if the folder is not a clone, or git is not installed.
    """
    commit = _git(root, "rev-parse", "--verify", "HEAD")
    if commit is None or not re.fullmatch(r"[0-9a-f]{40,64}", commit):
        return None
    return f"{commit}{DIRTY}" if not_in_commit(root, commit, files) else commit


def not_in_commit(root: Path, commit: str, files: Mapping[str, Path]) -> list[str]:
    """Return the names of the files that a commit does not have as they are, such as those outside the clone."""
    top = Path(_git(root, "rev-parse", "--show-toplevel") or root)
    entries = (_git(root, "ls-tree", "-r", "-z", "--full-tree", commit) or "").split("\0")
    blobs = {path: details.split(" ")[2] for details, _, path in (one.partition("\t") for one in entries if one)}
    kind = hashlib.sha256 if len(commit) == hashlib.sha256().digest_size * 2 else hashlib.sha1

    def blob(path: Path) -> str:
        content = path.read_bytes()
        return kind(f"blob {len(content)}\0".encode() + content).hexdigest()

    def is_there(path: Path) -> bool:
        place = path.resolve()
        return place.is_relative_to(top) and blobs.get(place.relative_to(top).as_posix()) == blob(path)

    return [name for name, path in sorted(files.items()) if not is_there(path)]


def _git(root: Path, *arguments: str) -> str | None:
    """Return the output of git in a folder, None if it fails."""
    command = ["git", "-C", str(root), *arguments]
    try:
        ended = subprocess.run(command, capture_output=True, check=False, timeout=GIT_WITHIN_S)  # noqa: S603 (git reads no shell syntax)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return ended.stdout.decode(errors="replace").rstrip("\n") if ended.returncode == 0 else None


def copy_code(files: Mapping[str, Path], folder: Path) -> None:
    """Copy the files into an empty folder, laid out as in the asset."""
    for name, path in files.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)


def _checked(path: Path) -> Path:
    if path.is_symlink():
        raise CliError(f"{path}: is a symbolic link, whose target may change unnoticed. Replace it with a copy.")
    size = path.stat().st_size
    if size > MAX_FILE_BYTES:
        raise CliError(
            f"{path}: has {size:,} bytes; code files may have {MAX_FILE_BYTES:,}. Move data to the data account."
        )
    return path


def _report(say: Say, what: str, *, created: bool) -> None:
    say(f"{what}: {'created' if created else 'exists already'}")
