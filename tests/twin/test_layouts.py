"""Files in Spark's layout, from the upload to the registered model."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from azure.storage.blob import BlobServiceClient

from cli.demo.digits import Digits, encode_png, load_digits, split, write_shards
from local_azure.processes import wait_until
from tests.ranks.ranks import score
from tests.support.terminal import landfall
from tests.support.twin import WITHIN_S, TwinUnderTest

pytestmark = pytest.mark.twin

WRITE = UUID(int=7)
"""Spark gives each write an id, which is part of the file names."""
TRAINED_WITHIN_S = 500.0
MARKER = {"_SUCCESS": b""}


def part(of_split: str, number: int, columns: Mapping[str, Any]) -> dict[str, bytes]:
    """A file of a table written with ``partitionBy("split")``, with its checksum beside it."""
    name = f"part-{number:05d}-{WRITE}.c000.snappy.parquet"
    buffer = io.BytesIO()
    pq.write_table(pa.table(dict(columns)), buffer, compression="snappy")
    return {f"split={of_split}/{name}": buffer.getvalue(), f"split={of_split}/.{name}.crc": b"crc"}


def images(digits: Digits) -> dict[str, Any]:
    """Columns of images and labels."""
    return {"image": [encode_png(image) for image in digits.images], "label": pa.array(digits.labels)}


def labels(first: int, num: int = 20) -> dict[str, Any]:
    """A column of labels."""
    return {"label": pa.array([(first + n) % 10 for n in range(num)], pa.int64())}


def test_a_table_of_spark_trains_once_its_marker_is_there(twin: TwinUnderTest) -> None:
    """Until then the status names the missing marker; a later file waits for the next marker and changes nothing."""
    table = {**part("train", 0, labels(0)), **part("train", 1, labels(1, 7)), **part("validation", 0, labels(2))}
    twin.upload("spark/v1", table)
    wait_until(lambda: twin.version("spark/v1"), what="a file to be validated", timeout_s=WITHIN_S)
    twin.await_quiet()
    version = twin.version("spark/v1")
    asked = {line for split in version["splits"].values() for line in split["missing"]}
    assert ({"_SUCCESS, which says that all files have come"}, []) == (asked, version["runs"])
    twin.upload("spark/v1", MARKER)
    run = twin.await_settled("spark/v1")
    assert ("registered", 1) == (run["state"], len(twin.models(run["run_id"]))), run


def test_listed_files_train_once_they_are_as_the_list_states(twin: TwinUnderTest) -> None:
    """A file that differs is rejected with the line of the list; files that are not listed are ignored."""
    table = {**part("train", 0, labels(5)), **part("train", 1, labels(6, 7)), **part("validation", 0, labels(7))}
    files = {name: content for name, content in table.items() if name.endswith(".parquet")}
    rows = [f"{name},{len(content)},{hashlib.sha256(content).hexdigest()}" for name, content in files.items()]
    first, *others = files
    damaged = part("train", 0, labels(9))[first]
    stated = "\n".join(["name,size,sha256", *rows]).encode()
    twin.upload("listed/v1", {**{name: files[name] for name in others}, first: damaged, "files.csv": stated})
    wait_until(lambda: has_rejected(twin, "listed/v1"), what="the damaged file to be rejected", timeout_s=WITHIN_S)
    (reason,) = twin.version("listed/v1")["splits"]["train"]["rejected"][0]["reasons"]
    assert ("differs_from_list", True) == (reason["code"], "files.csv states in line 2" in reason["message"])
    twin.upload("listed/v1", {first: files[first]} | part("train", 9, labels(8)))
    run = twin.await_settled("listed/v1")
    twin.await_quiet()
    version = twin.version("listed/v1")
    assert ("registered", 2, 1) == (
        run["state"],
        version["splits"]["train"]["num_shards"],
        len(version["splits"]["train"]["unlisted"]),
    ), run


def has_rejected(twin: TwinUnderTest, version: str) -> bool:
    """Whether a training file of a version is rejected."""
    known = twin.version(version)
    return bool(known and known["splits"]["train"]["rejected"])


@pytest.mark.usefixtures("no_faults_left")
def test_a_table_whose_events_are_all_lost_is_found_by_the_sweep(twin: TwinUnderTest) -> None:
    """Two files, their checksums and the marker: Spark commits by renaming folders, which sends no events."""
    twin.client.set_faults({"topic": "storage", "drop": True})
    twin.upload("spark/unseen", {**part("train", 0, labels(3)), **part("validation", 0, labels(4)), **MARKER})
    wait_until(
        lambda: len(announced(twin, "spark/unseen")) == 5,
        what="the events to be dropped",
        timeout_s=WITHIN_S,
    )
    twin.client.end_faults()
    twin.sweep()
    run = twin.await_settled("spark/unseen")
    assert "registered" == run["state"], run


def announced(twin: TwinUnderTest, version: str) -> list[str]:
    """Return the subjects of the upload events of a version that Event Grid has received, delivered or not."""
    subjects = (entry["event"]["subject"] for entry in twin.client.received("storage"))
    return [subject for subject in subjects if f"/{version}/" in subject]


@pytest.mark.slow
def test_a_table_of_images_trains_a_model_that_is_used_without_landfall(
    twin: TwinUnderTest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Real ranks read the files that the manifest lists, in their folders; the passport and the model are correct.

    The registered files alone, fetched from storage, give the accuracy that the model was registered with.
    """
    digits, validation = split(load_digits())
    table = {
        name: content
        for number in range(3)
        for name, content in part("train", number, images(digits.take(np.arange(number, len(digits), 3)))).items()
    }
    twin.upload("tables/v1", {**table, **part("validation", 0, images(validation)), **MARKER})
    run = twin.await_settled("tables/v1", within_s=TRAINED_WITHIN_S)
    assert ("registered", 2, 1) == (run["state"], run["world_size"], len(twin.models(run["run_id"]))), run
    places, model = twin.twin.places, f"{run['model_name']}:{run['model_version']}"
    app = ("--url", places.functions_url, "--key", places.secrets.function_key)
    status, out, err = landfall(capsys, "verify", model, *app)
    assert (0, "", True) == (status, err, "nothing differs" in out), out
    write_shards(validation, tmp_path / "shards", split_name="validation", num_shards=1)
    found = score(fetched(twin, run, tmp_path / "model"), tmp_path / "shards", tmp_path)
    assert run["metrics"]["val_accuracy"] == pytest.approx(found["accuracy"], abs=1e-6)


def fetched(twin: TwinUnderTest, run: Mapping[str, Any], folder: Path) -> Path:
    """Download the files of a run's model as `landfall run` shows; return their folder."""
    path = run["outputs"]["model"].partition("/paths/")[2]
    with BlobServiceClient.from_connection_string(twin.twin.places.host_connection) as host:
        container = host.get_container_client("runs")
        for name in list(container.list_blob_names(name_starts_with=f"{path}/")):
            file = folder / name.removeprefix(f"{path}/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(container.download_blob(name).readall())
    return folder
