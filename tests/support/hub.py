"""What the library `datasets` writes beside the shards that it pushes to the Hugging Face Hub."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from shard_validation.file_lists import INFOS_FILE, README_FILE


def info(totals: Mapping[str, int]) -> Any:
    """What the library knows of a data set whose splits have so many records."""
    from datasets import DatasetInfo
    from datasets.splits import SplitDict, SplitInfo

    known = DatasetInfo(download_size=4711, dataset_size=99)
    known.splits = SplitDict({
        split: SplitInfo(split, num_bytes=77, num_examples=number, dataset_name="signs")
        for split, number in totals.items()
    })  # fmt: skip
    return known


def write_card(folder: Path, totals: Mapping[str, int]) -> None:
    """Write the card as push_to_hub does, of shards below data/."""
    from datasets.info import DatasetCard, DatasetCardData, DatasetInfosDict
    from datasets.utils.metadata import MetadataConfigs

    card = DatasetCardData()
    files = [{"split": split, "path": f"data/{split}-*"} for split in totals]
    MetadataConfigs({"default": {"data_files": files}}).to_dataset_card_data(card)
    DatasetInfosDict({"default": info(totals)}).to_dataset_card_data(card)
    DatasetCard(f"---\n{card}\n---\n# Signs\n").save(folder / README_FILE)


def write_infos(folder: Path, totals: Mapping[str, int]) -> None:
    """Write the file that older versions of the library wrote instead of the card."""
    (folder / INFOS_FILE).write_text(json.dumps({"default": asdict(info(totals))}), encoding="utf-8")
