"""The demo's data: real digits, split fairly, the same bytes at every call."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cli.demo.digits import Digits, encode_png, load_digits, pack_digits, split
from shared.shard_names import parse_shard_name


@pytest.fixture(scope="module")
def digits() -> Digits:
    return load_digits()


def test_all_digits_are_used_once(digits: Digits) -> None:
    """Train and validation together are the 1,797 images."""
    train, validation = split(digits)
    both = np.concatenate([train.images, validation.images])
    assert (1437, 360, Counter(map(bytes, digits.images))) == (len(train), len(validation), Counter(map(bytes, both)))


def test_every_digit_has_its_share_of_the_validation(digits: Digits) -> None:
    """A fifth of each label is validation, give or take one."""
    _, validation = split(digits)
    shares = {label: len(validation.labels[validation.labels == label]) for label in range(10)}
    wanted = {label: 0.2 * int((digits.labels == label).sum()) for label in range(10)}
    assert [] == [label for label in range(10) if abs(shares[label] - wanted[label]) > 1]


def test_labels_are_shuffled(digits: Digits) -> None:
    """A shard sorted by label would teach one digit after the other."""
    train, _ = split(digits)
    assert 10 == len(set(train.labels[:100].tolist()))


def test_a_png_gives_its_image_back(digits: Digits) -> None:
    """PNG is lossless; grey stays one channel."""
    decoded = Image.open(io.BytesIO(encode_png(digits.images[0])))
    assert ("L", digits.images[0].tolist()) == (decoded.mode, np.asarray(decoded).tolist())


def test_packing_is_deterministic_and_named_by_the_convention(tmp_path: Path) -> None:
    """Ten shards, and the same bytes in another folder."""
    first, second = pack_digits(tmp_path / "a"), pack_digits(tmp_path / "b")
    names = [parse_shard_name(path.name) for path in first]
    assert ({"train": 8, "validation": 2}, [p.read_bytes() for p in first]) == (
        dict(Counter(name.split for name in names)),
        [p.read_bytes() for p in second],
    )
