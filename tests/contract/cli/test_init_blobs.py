"""`landfall init` on a folder of a storage account: it writes the same file as for a local copy."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from azure.storage.blob import BlobServiceClient, ContainerSasPermissions, generate_container_sas
from deltalake import write_deltalake

from cli.init.blob_folders import _is_copied
from local_azure.azurite import Azurite
from tests.support.processes import REPOSITORY
from tests.support.shards import image_bytes
from tests.support.terminal import landfall

pytestmark = pytest.mark.azurite

Capture = pytest.CaptureFixture[str]
CONTAINER = "looked-into"
ROWS = [
    {"image": image_bytes("PNG", (8, 8)), "label": n % 3, "split": "train" if n > 9 else "test"} for n in range(30)
]
TABLE = pa.Table.from_pylist(ROWS)


def delta(folder: Path) -> None:
    """A table whose first version was deleted."""
    for rows in (TABLE.slice(0, 3), TABLE):
        write_deltalake(folder, rows, mode="overwrite", partition_by=["split"])


def spark(folder: Path) -> None:
    """The files that Spark wrote."""
    shutil.copytree(REPOSITORY / "tests" / "fixtures" / "spark" / "scans", folder, dirs_exist_ok=True)


def listed(folder: Path) -> None:
    """Files for which a list states the splits."""
    for name in ("a", "b", "c"):
        pq.write_table(TABLE.drop_columns(["split"]), folder / f"{name} 1.parquet")
    (folder / "files.csv").write_text("name,split\na 1.parquet,train\nb 1.parquet,train\nc 1.parquet,test\n")


def named(folder: Path) -> None:
    """Files with -of-N."""
    for name in ("train-00000-of-00001.parquet", "test-00000-of-00001.parquet"):
        pq.write_table(TABLE.drop_columns(["split"]), folder / name)


@pytest.fixture
def service(azurite: Azurite, monkeypatch: pytest.MonkeyPatch) -> Iterator[BlobServiceClient]:
    """The account that `DataStorage` names, with an empty container."""
    monkeypatch.setenv("DataStorage", azurite.connection_string())
    with closing(BlobServiceClient.from_connection_string(azurite.connection_string())) as service:
        if service.get_container_client(CONTAINER).exists():
            for name in list(service.get_container_client(CONTAINER).list_blob_names()):
                service.get_blob_client(CONTAINER, name).delete_blob()
        else:
            service.create_container(CONTAINER)
        yield service


@pytest.fixture
def pipelines(tmp_path: Path) -> Path:
    """A folder for pipelines, with a clusters file."""
    (tmp_path / "pipelines").mkdir()
    shutil.copy(REPOSITORY / "pipelines" / "clusters.yaml", tmp_path / "pipelines")
    return tmp_path / "pipelines"


@pytest.mark.parametrize("write", [delta, spark, listed, named])
def test_a_folder_of_blobs_gives_the_file_that_its_copy_gives(
    service: BlobServiceClient, pipelines: Path, capsys: Capture, write: Callable[[Path], None]
) -> None:
    """Lists, markers and logs are read; the dataset is named after the folder in the container."""
    copy = pipelines.parent / "pets"
    copy.mkdir()
    write(copy)
    for path in filter(Path.is_file, copy.rglob("*")):
        service.get_blob_client(CONTAINER, f"pets/v1/{path.relative_to(copy).as_posix()}").upload_blob(
            path.read_bytes()
        )
    texts = []
    for source in (copy, f"{service.url}{CONTAINER}/pets/v1/"):
        status, out, err = landfall(capsys, "init", source, "--to", pipelines / "pets.yaml")
        assert (0, "") == (status, err)
        texts.append((pipelines / "pets.yaml").read_text(encoding="utf-8"))
        (pipelines / "pets.yaml").unlink()
    assert texts[0] == texts[1]
    assert ("dataset: pets" in texts[1], "landfall reconcile" in out.splitlines()[-1]) == (True, True)


def test_a_signature_opens_the_folder_and_is_never_shown(
    service: BlobServiceClient, pipelines: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The account refuses a wrong signature."""
    named(pipelines.parent)
    for path in pipelines.parent.glob("*.parquet"):
        service.get_blob_client(CONTAINER, f"pets/v1/{path.name}").upload_blob(path.read_bytes())
    signature = generate_container_sas(
        str(service.account_name),
        CONTAINER,
        service.credential.account_key,
        permission=ContainerSasPermissions(read=True, list=True),
        expiry=datetime.now(UTC) + timedelta(hours=1),
    )
    monkeypatch.delenv("DataStorage")
    folder = f"{service.url}{CONTAINER}/pets/v1/"
    status, out, err = landfall(capsys, "init", f"{folder}?{signature}", "--to", pipelines / "pets.yaml")
    assert (0, True, False) == (status, (pipelines / "pets.yaml").is_file(), "sig=" in out + err), err
    wrong = f"{folder}?{signature[:-8]}AAAAAAA%3D"
    status, out, err = landfall(capsys, "init", wrong, "--to", pipelines / "other.yaml")
    assert (1, True, False) == (status, f"{folder}: cannot be read: " in err, "sig=" in out + err)


def test_a_folder_without_blobs_and_a_url_without_its_slash_say_so(
    service: BlobServiceClient, pipelines: Path, capsys: Capture
) -> None:
    """So does a container that does not exist."""
    service.get_blob_client(CONTAINER, "pets/v10/x.parquet").upload_blob(b"x")
    expected = {
        f"{CONTAINER}/pets/v1/": "there is no blob in this folder",
        f"{CONTAINER}/pets/v1": "there is no such blob; the URL of a folder ends with /",
        "nowhere/pets/v1/": "The specified container does not exist",
    }
    for path, words in expected.items():
        status, _, err = landfall(capsys, "init", f"{service.url}{path}", "--to", pipelines / "x.yaml")
        assert (1, True) == (status, words in err), err


def test_hostile_names_of_blobs_leave_their_folder_alone(
    service: BlobServiceClient, pipelines: Path, capsys: Capture
) -> None:
    """Nothing is written outside of the folder, and no terminal escapes are shown."""
    outside = ("..", "../x.csv", "/x.csv", "_delta_log/..", "_delta_log/../../x.csv", "a/x.csv", "_\0.csv", "")
    assert [False] * len(outside) == [_is_copied(name, 1) for name in outside]
    for name in ("_\u202e.csv", "sub/_x.csv", "\u202ea.txt"):
        service.get_blob_client(CONTAINER, f"pets/v1/{name}").upload_blob(b"name\nx\n")
    status, out, err = landfall(capsys, "init", f"{service.url}{CONTAINER}/pets/v1/", "--to", pipelines / "x.yaml")
    assert (2, False, True) == (status, "\u202e" in out + err, "its name is not that of a shard" in err), err
