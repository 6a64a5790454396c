"""The lists of the Hugging Face Hub, as the library `datasets` writes and reads them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from function_app.config.layouts import Layout
from shard_validation.file_lists import INFOS_FILE, README_FILE, read_file_list
from shared.manifest import Manifest
from tests.support.shards import write_card, write_infos
from tests.support.world import PIPELINE, VERSION, World, read_pipeline

TOTALS = {"train": 17, "test": 5}
TREES = (
    ("data/train-00000-of-00002.parquet", "data/train-00001-of-00002-01ab.parquet", "data/dev-00000-of-00001.csv"),
    ("train/a.parquet", "val/b.parquet", "my-test/x/c.parquet", "d.parquet"),
    ("train.parquet", "x/valid_1.parquet", "eval-0.parquet", "contest.parquet"),
    ("training 1.parquet", "more.train.parquet", "train2.parquet"),
    ("a.parquet", "b/c/d.parquet"),
)  # fmt: skip
PATTERNS = ("data/*", "data/**", "**", "**/b*", "*/[bc].parquet", "da?a/b.parquet", "data/*/c.parquet", "data/[!b]*")


@pytest.fixture(scope="module")
def signs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset as push_to_hub uploads it: shards in data/, and the card."""
    from datasets import Dataset

    folder = tmp_path_factory.mktemp("signs")
    (folder / "data").mkdir()
    for split, number in TOTALS.items():
        rows = Dataset.from_dict({"label": [row % 3 for row in range(number)]})
        for index in range(2):
            name = f"data/{split}-{index:05d}-of-00002.parquet"
            rows.shard(num_shards=2, index=index, contiguous=True).to_parquet(str(folder / name))
    write_card(folder, TOTALS)
    write_infos(folder, TOTALS)
    return folder


def closings(world: World) -> list[dict[str, int]]:
    """Return the records of each split in each closing."""
    found = []
    for generation in reversed(world.ledger.generations(VERSION)):
        shards = Manifest.from_json(world.documents.documents[generation.manifest_path]).shards
        found.append({split: sum(s.num_records for s in shards if s.split == split) for split in TOTALS})
    return found


@pytest.mark.parametrize("name", [README_FILE, INFOS_FILE])
def test_a_data_set_that_datasets_wrote_closes_with_its_own_list(signs: Path, name: str) -> None:
    """It closes with any order of the shards, but not with another total."""
    world = World()
    text = PIPELINE.replace("    image: {kind: float, shape: [2, 2, 1]}\n", "").replace(
        "format: tfrecord", "format: parquet"
    )
    data = read_pipeline(text.replace("[train, validation]", "[train, test]")).data
    world.change_pipeline(data=data.model_copy(update={"layout": Layout(kind="manifest", manifest=name)}))
    shards = [path.relative_to(signs).as_posix() for path in sorted(signs.rglob("*.parquet"), reverse=True)]
    content = (signs / name).read_bytes()
    for each, data_of in [*((shard, (signs / shard).read_bytes()) for shard in shards), (name, content)]:
        world.clock.move(seconds=2)
        world.deliver(world.put(each, data_of))
    assert [TOTALS] == closings(world)
    wrong = content.replace(b"num_examples: 17", b"num_examples: 18").replace(b'_examples": 17', b'_examples": 18')
    world.clock.move(seconds=2)
    world.deliver(world.put(shards[0], (signs / shards[1]).read_bytes()))
    world.deliver(world.put(name, wrong))
    assert [TOTALS] == closings(world)


@pytest.mark.parametrize("tree", TREES)
def test_the_conventions_are_those_of_the_library(tree: tuple[str, ...], tmp_path: Path) -> None:
    """`datasets` finds the same files for the same splits."""
    from datasets.data_files import DataFilesDict, get_data_patterns

    for name in tree:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = DataFilesDict.from_patterns(get_data_patterns(str(tmp_path)), base_path=str(tmp_path))
    by_library = {str(Path(path).relative_to(tmp_path)): split for split, paths in found.items() for path in paths}
    stated = read_file_list(README_FILE, b"---\ndataset_info: {splits: [{name: train, num_examples: 1}]}\n---\n")
    assert by_library == {name: file.split for name, file in stated.among(tree).items()}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_finds_what_the_library_finds(pattern: str, tmp_path: Path) -> None:
    """One star matches within a folder, two match across folders."""
    from datasets.data_files import resolve_pattern

    tree = (
        "b.parquet",
        "data/a.parquet",
        "data/b.parquet",
        "data/x/b.parquet",
        "data/x/c.parquet",
        "other/c.parquet",
    )
    for name in tree:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    by_library = {str(Path(path).relative_to(tmp_path)) for path in resolve_pattern(pattern, str(tmp_path))}
    metadata = {
        "configs": [{"config_name": "a", "data_files": pattern}],
        "dataset_info": {"splits": [{"name": "train", "num_examples": 1}]},
    }
    stated = read_file_list(README_FILE, f"---\n{json.dumps(metadata)}\n---\n".encode())
    assert by_library == set(stated.among(tree))
