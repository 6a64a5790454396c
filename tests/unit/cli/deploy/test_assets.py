"""Publishing registers what is missing, once, and prints the settings that refer to it."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from cli.deploy.assets import (
    MAX_FILE_BYTES,
    Containers,
    Publication,
    code_version,
    collect_code,
    copy_code,
    environment_version,
    not_in_commit,
    publish,
)
from cli.deploy.clusters import WantedCluster
from cli.deploy.workspace import WorkspaceId
from cli.errors import CliError
from function_app.config.clusters import Cluster, ClusterSize
from function_app.config.environments import OwnEnvironment
from function_app.config.own_files import read_files
from shared import SPOKEN, spoken_by
from tests.support.memory_workspace import MemoryWorkspace
from tests.support.processes import REPOSITORY

IMAGE = f"r.azurecr.io/landfall-training@sha256:{'1' * 64}"
CLUSTER = Cluster(sizes=(ClusterSize(vm_size="Standard_ND96asr_v4"),))
W = "/subscriptions/s/resourceGroups/g/providers/Microsoft.MachineLearningServices/workspaces/w"


@pytest.fixture
def publication(tmp_path: Path) -> Publication:
    for name in ("shared/a.py", "training_job/b.py", "training_job/environment/Dockerfile"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return Publication(
        root=tmp_path,
        pipelines=tmp_path / "pipelines",
        identity=WorkspaceId(subscription="s", resource_group="g", workspace="w"),
        image=IMAGE,
        containers=Containers(data_account="data", host_account="host"),
        clusters=[WantedCluster(name=name, cluster=CLUSTER, needed_nodes=4) for name in ("gpu", "rdma")],
    )


def test_everything_that_a_submission_refers_to_is_registered(publication: Publication) -> None:
    """Environment, code, three datastores and the clusters."""
    workspace = MemoryWorkspace()
    publish(publication, workspace, lambda _line: None)
    assert (
        [IMAGE],
        [["shared/a.py", "training_job/b.py"]],
        {"landfall_datasets": ("data", "datasets"), "landfall_state": ("host", "landfall")}
        | {"landfall_runs": ("host", "runs")},
        ["gpu", "rdma"],
    ) == (
        list(workspace.environments.values()),
        list(workspace.codes.values()),
        workspace.datastores,
        list(workspace.clusters),
    )


def test_environments_of_pipelines_are_registered_under_the_version_that_jobs_name(publication: Publication) -> None:
    """They are based on Landfall's image or on their own."""
    workspace, base = MemoryWorkspace(), environment_version(IMAGE)
    owns = [OwnEnvironment(conda_file="{}"), OwnEnvironment(image=IMAGE.replace("1", "2"))]
    publish(replace(publication, environments=owns), workspace, lambda _line: None)
    expected = {("landfall-own", own.version(base)): own.image or IMAGE for own in owns}
    assert {("landfall-training", base): IMAGE, **expected} == workspace.environments
    assert ["{}"] == [conda for conda in workspace.conda_files.values() if conda]


def test_files_of_pipelines_are_registered_under_the_version_that_jobs_name(
    publication: Publication, tmp_path: Path
) -> None:
    """They are registered once; a file that changed after its digest was made would have a wrong version."""
    (tmp_path / "weights.h5").write_bytes(b"w")
    files, workspace = read_files(tmp_path, ["weights.h5"]), MemoryWorkspace()
    said: list[str] = []
    for _ in range(2):
        publish(replace(publication, files=[files]), workspace, said.append)
    assert {("landfall-files", files.version): ["weights.h5"]} == workspace.files
    own = [line for line in said if line.startswith("files ")]
    assert [f"files landfall-files:{files.version} (1 files): {did}" for did in ("created", "exists already")] == own
    (tmp_path / "weights.h5").write_bytes(b"other")
    with pytest.raises(CliError, match=r"weights.h5: changed while it was published; run landfall publish again"):
        publish(replace(publication, files=[files]), workspace, said.append)


def test_the_settings_refer_to_what_was_registered(publication: Publication) -> None:
    """Environment and code stand there by their full ids, and each cluster with its size."""
    workspace = MemoryWorkspace()
    settings = publish(publication, workspace, lambda _line: None)
    [(_, environment)], [(_, code)] = workspace.environments, workspace.codes
    assert (
        f"{W}/environments/landfall-training/versions/{environment}",
        f"{W}/codes/landfall-training/versions/{code}",
    ) == (settings["LANDFALL_ENVIRONMENT_ID"], settings["LANDFALL_CODE_ID"])
    assert "gpu=Standard_ND96asr_v4,rdma=Standard_ND96asr_v4" == settings["LANDFALL_CLUSTER_SIZES"]


def test_publishing_twice_creates_nothing_the_second_time(publication: Publication) -> None:
    """The second time says of everything that it is there already, and gives the same settings."""
    workspace, said = MemoryWorkspace(), list[str]()
    first = publish(publication, workspace, lambda _line: None)
    second = publish(publication, workspace, said.append)
    assert (first, []) == (second, [line for line in said if ": exists already" not in line])


def test_accounts_that_are_not_named_leave_their_datastores_alone() -> None:
    """Only the data account's datastore is registered if only that account is passed."""
    containers = Containers(data_account="data", host_account=None)
    assert {"landfall_datasets": ("data", "datasets")} == containers.by_datastore()


def test_an_environments_version_follows_its_image() -> None:
    """Another image is another version; the same one is the same."""
    versions = [environment_version(image) for image in (IMAGE, IMAGE, IMAGE.replace("1", "2"))]
    assert (True, False) == (versions[0] == versions[1], versions[1] == versions[2])


def clone(folder: Path) -> tuple[Path, Path]:
    """Make a small clone; return it and its pipelines."""
    contents = {
        "shared/__init__.py": "",
        "training_job/train.py": "print('train')",
        "training_job/environment/Dockerfile": "FROM x",
        "training_job/environment/check.py": "",
        "training_job/data/notes.txt": "",
        "training_job/__pycache__/train.cpython-311.pyc": "x",
        "function_app/app.py": "",
        "pipelines/digits.yaml": "x",
        "pipelines/scripts/mine.py": "print('mine')",
    }
    for name, text in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder, folder / "pipelines"


def test_a_snapshot_is_shared_training_and_scripts(tmp_path: Path) -> None:
    """Python sources: no environment, no bytecode, no notes, nothing of the function app."""
    assert [
        "scripts/mine.py",
        "shared/__init__.py",
        "training_job/train.py",
    ] == sorted(collect_code(*clone(tmp_path)))


def test_the_same_code_has_the_same_digest_wherever_it_is(tmp_path: Path) -> None:
    """Folder and time of checkout do not matter."""
    digests = {code_version(collect_code(*clone(tmp_path / name))) for name in ("one", "two")}
    assert 1 == len(digests)


@pytest.mark.parametrize("change", ["content", "name"])
def test_changed_code_has_another_digest(tmp_path: Path, change: str) -> None:
    """A changed content and a changed name both count."""
    root, pipelines = clone(tmp_path)
    before = code_version(collect_code(root, pipelines))
    script = pipelines / "scripts" / "mine.py"
    script.write_text("print('other')") if change == "content" else script.rename(script.with_name("other.py"))
    assert before != code_version(collect_code(root, pipelines))


def test_the_code_is_published_with_the_commit_that_has_it(publication: Publication) -> None:
    """Changed files are marked and named; there is no commit if the folder is not in a clone."""
    root, said = publication.root, list[str]()

    def commits() -> list[str | None]:
        workspace = MemoryWorkspace()
        said.clear()
        publish(publication, workspace, said.append)
        return list(workspace.commits.values())

    def differing() -> list[str]:
        return [line.partition("does not have ")[2] for line in said if "does not have" in line]

    def git(*arguments: str) -> str:
        own = ["-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false"]
        ended = subprocess.run(["git", "-C", str(root), *own, *arguments], check=True, capture_output=True, text=True)
        return ended.stdout.strip()

    assert [None] == commits()
    git("init", "--quiet")
    git("add", "shared", "training_job")
    git("commit", "--quiet", "--message", "first")
    head = git("rev-parse", "HEAD")
    assert [head] == commits()
    (root / "notes.txt").write_text("not published")
    assert ([head], []) == (commits(), differing())
    (root / "shared" / "a.py").write_text("changed = True")
    assert ([f"{head}-dirty"], ["shared/a.py"]) == (commits(), differing())
    git("checkout", "shared")
    (root / ".gitignore").write_text("ignored/")
    (root / "shared" / "ignored").mkdir()
    (root / "shared" / "ignored" / "b.py").write_text("b = 1")
    assert ([f"{head}-dirty"], ["shared/ignored/b.py"]) == (commits(), differing())


def test_scripts_outside_the_clone_are_in_none_of_its_commits(tmp_path: Path) -> None:
    """Git answers no question about a folder outside; the clone's own files are compared all the same."""
    files = {"shared/__init__.py": REPOSITORY / "shared" / "__init__.py", "scripts/mine.py": tmp_path / "mine.py"}
    files["scripts/mine.py"].write_text("print('mine')")
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=REPOSITORY, check=True, capture_output=True, text=True)
    assert ["scripts/mine.py"] == not_in_commit(REPOSITORY, head.stdout.strip(), files)


def test_the_version_says_which_contracts_the_code_speaks(tmp_path: Path) -> None:
    """The function app compares them with its own before it submits a job."""
    version = code_version(collect_code(*clone(tmp_path)))
    assert SPOKEN == spoken_by(f"{W}/codes/landfall-training/versions/{version}")
    assert version.startswith("c1-")


def test_building_copies_the_files(tmp_path: Path) -> None:
    """The folder holds what the training will find in its working directory."""
    files = collect_code(*clone(tmp_path / "clone"))
    copy_code(files, tmp_path / "built")
    assert "print('mine')" == (tmp_path / "built" / "scripts" / "mine.py").read_text()


def test_a_link_is_refused(tmp_path: Path) -> None:
    """What a link points to may change without the digest knowing."""
    root, pipelines = clone(tmp_path)
    (pipelines / "scripts" / "link.py").symlink_to(root / "function_app" / "app.py")
    with pytest.raises(CliError, match=r"link\.py: is a symbolic link"):
        collect_code(root, pipelines)


def test_data_are_refused(tmp_path: Path) -> None:
    """A large file among the scripts is a mistake that would be uploaded with every change."""
    root, pipelines = clone(tmp_path)
    with (pipelines / "scripts" / "data.bin").open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    with pytest.raises(CliError, match=r"data\.bin: has 10,485,761 bytes; code files may have"):
        collect_code(root, pipelines)


def test_this_clones_snapshot_holds_what_the_training_imports() -> None:
    """The contract and the training's entry point are in it."""
    files = collect_code(REPOSITORY, REPOSITORY / "pipelines")
    assert {"shared/manifest.py", "training_job/train.py"} <= set(files)
