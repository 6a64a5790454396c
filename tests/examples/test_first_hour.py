"""Data as people have them become a registered model by the commands of docs/first-hour.md, with no file edited."""

from __future__ import annotations

import io
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from PIL import Image

from local_azure.processes import wait_until
from tests.examples.journeys import DEADLINE_S, ended, landfall
from tests.support.processes import REPOSITORY
from tests.support.shards import write_card
from tests.support.twin import TwinUnderTest

pytestmark = [pytest.mark.slow, pytest.mark.twin, pytest.mark.distributed]

CLASSES = ("dark", "bright")
NUM_IMAGES = 240


def image(number: int) -> bytes:
    """A grey PNG; those of odd numbers are brighter."""
    written = io.BytesIO()
    Image.new("RGB", (24, 24), (40 + number % 30 + 130 * (number % 2),) * 3).save(written, "PNG")
    return written.getvalue()


IMAGES = [image(number) for number in range(NUM_IMAGES)]
LABELS = [number % 2 for number in range(NUM_IMAGES)]


def photos(folder: Path) -> None:
    """A folder for each class."""
    for number, content in enumerate(IMAGES):
        path = folder / "photos" / CLASSES[LABELS[number]] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def scans(folder: Path) -> None:
    """The files that Spark wrote: a folder for each value of the split, checksums of Hadoop, the marker."""
    shutil.copytree(REPOSITORY / "tests" / "fixtures" / "spark" / "scans", folder / "scans")


def plates(folder: Path) -> None:
    """A Delta table with a history: its rows were written, replaced, added to and compacted."""
    splits = ["train" if row < 200 else "validation" for row in range(NUM_IMAGES)]
    rows = pa.table({"image": IMAGES, "label": LABELS, "split": splits})
    first, rest = rows.take([*range(150), *range(200, 230)]), rows.take([*range(150, 200), *range(230, 240)])
    write_deltalake(folder / "plates", rows.take([7, 222]), partition_by=["split"])
    write_deltalake(folder / "plates", first, mode="overwrite")
    write_deltalake(folder / "plates", rest, mode="append")
    DeltaTable(folder / "plates").optimize.compact()


def images_of_hugging_face() -> dict[str, Any]:
    """Two splits of the library `datasets`."""
    from datasets import ClassLabel, Dataset, Features
    from datasets import Image as ImageFeature

    columns = {"image": [{"bytes": content, "path": None} for content in IMAGES], "label": LABELS}
    features = Features({"image": ImageFeature(), "label": ClassLabel(names=list(CLASSES))})
    return dict(Dataset.from_dict(columns, features=features).train_test_split(test_size=40, seed=1))


def signs(folder: Path) -> None:
    """A file of each split, as the library writes it."""
    (folder / "signs").mkdir()
    for split, rows in images_of_hugging_face().items():
        rows.to_parquet(str(folder / "signs" / f"{split}-00000-of-00001.parquet"))


def cards(folder: Path) -> None:
    """A copy of a repository of the Hub: shards of each split below data/, and the card that lists them."""
    (folder / "cards" / "data").mkdir(parents=True)
    splits = images_of_hugging_face()
    for split, rows in splits.items():
        for index in range(2):
            shard = rows.shard(num_shards=2, index=index, contiguous=True)
            shard.to_parquet(str(folder / "cards" / "data" / f"{split}-{index:05d}-of-00002.parquet"))
    write_card(folder / "cards", {split: len(rows) for split, rows in splits.items()})


def export(folder: Path) -> None:
    """Twelve files."""
    frame = pd.DataFrame({"image": IMAGES, "label": LABELS}).sample(frac=1, random_state=1)
    (folder / "export").mkdir()
    for number in range(12):
        frame.iloc[number::12].to_parquet(folder / "export" / f"{number:02}.parquet")


SOURCES: dict[str, tuple[Callable[[Path], None], str, str]] = {
    "photos": (photos, "A folder of images", ""),
    "scans": (scans, "A Spark table", "kind: marker"),
    "plates": (plates, "A Delta table", "kind: delta"),
    "signs": (signs, "A Hugging Face data set", ""),
    "cards": (cards, "A Hugging Face data set", "manifest: README.md"),
    "export": (export, "A pandas export", "kind: marker"),
}
"""Dataset → what writes it, the section of the page, and the layout that `init` proposes: none for `names`."""
FOLDERS = {"shards", *SOURCES}


def commands(heading: str, dataset: str) -> list[list[str]]:
    """Return the commands of a section, without `landfall`, for a dataset of this name."""
    page = (REPOSITORY / "docs" / "first-hour.md").read_text(encoding="utf-8")
    block = re.search(rf"## {heading}\n.*?```sh\n(.*?)```", page, re.DOTALL)
    assert block is not None
    text = block[1].replace("signs", dataset) if dataset == "cards" else block[1]
    return [shlex.split(line)[1:] for line in text.splitlines()]


@pytest.mark.parametrize("dataset", SOURCES)
def test_data_become_a_registered_model_by_the_commands_of_the_page(
    twin: TwinUnderTest, tmp_path: Path, dataset: str
) -> None:
    """One after the other; folders are those of the test, and a copy of a repository has a name of its own."""
    write, heading, layout = SOURCES[dataset]
    write(tmp_path)
    pipelines, places = twin.twin.options.pipelines, twin.twin.places
    addresses = {
        "DataStorage": places.data_connection,
        "LANDFALL_URL": places.functions_url,
        "LANDFALL_FUNCTION_KEY": places.secrets.function_key,
    }

    def placed(before: str, word: str) -> str:
        if word.startswith("pipelines/"):
            return str(pipelines / word.removeprefix("pipelines/"))
        return str(tmp_path / word) if word in FOLDERS and before != "--dataset" else word

    for words in commands(heading, dataset):
        option = {"pack": "--pipeline", "init": "--to"}.get(words[0])
        to = [option, str(pipelines / f"{dataset}.yaml")] if option else []
        if words[0] == "status":  # which knows a version once the first event of its upload was handled
            wait_until(lambda: twin.version(f"{dataset}/v1"), what="the upload to be noticed", timeout_s=DEADLINE_S)
        landfall(*map(placed, ["", *words], words), *to, **addresses)
    written = (pipelines / f"{dataset}.yaml").read_text(encoding="utf-8")
    assert (layout in written, bool(layout)) == (True, "layout:" in written)
    journey = ended(twin, f"{dataset}/v1", tmp_path / "outputs")
    assert ("registered", dataset) == (journey.run["state"], journey.run["model_name"])
