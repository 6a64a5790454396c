"""How training data are shared out among the ranks."""

from __future__ import annotations

import pytest

from tests.unit.horovod_lint.scripts import FIT, TAPE, TORCH, found, places, spoilt

SHARD = "    dataset = dataset.shard(hvd.size(), hvd.rank())\n"
SLICED = "x, y = x[hvd.rank()::hvd.size()], y[hvd.rank()::hvd.size()]\n"
STEPS = "steps_per_epoch=50000 // 32 // hvd.size(), "


@pytest.mark.parametrize(
    ("script", "line"),
    [
        (spoilt(TAPE, (SHARD, "")), "for batch, (images, labels) in enumerate(dataset):"),
        (spoilt(FIT, (SLICED, ""), (STEPS, "")), "model.fit(x, y"),
        (spoilt(FIT, (SLICED, ""), (STEPS, f"{STEPS}shuffle=False, ")), "model.fit(x, y"),
        (spoilt(FIT, (SLICED, "tf.random.set_seed(1)\n")), "model.fit(x, y"),
        (spoilt(TORCH, ("batch_size=64, sampler=sampler", "batch_size=64")), "for image, label in loader:"),
    ],
)
def test_data_that_do_not_depend_on_the_rank_are_found(script: str, line: str) -> None:
    """The cases are a hand-written loop, Keras' fit, and a PyTorch loop."""
    named = [place for code, place in places(script) if code == "data_not_sharded"]
    assert [True] == [place.startswith(line) for place in named]


@pytest.mark.parametrize(
    "data",
    [
        "x, y = np.array_split(x, hvd.size())[hvd.rank()], np.array_split(y, hvd.size())[hvd.rank()]",
        "n = len(x) // hvd.size()\nx, y = x[hvd.rank() * n:(hvd.rank() + 1) * n], y[:n]",
        "x = np.load(f'part-{hvd.rank()}.npy')",
        "from mine import share_out\nx, y = share_out(x, y)",
        "x, y = tf.random.uniform([64, 3]), tf.random.uniform([64])",
        "rank = int(os.environ['OMPI_COMM_WORLD_RANK'])\nx = x[rank::8]",
        "mine = [i for i in range(len(x)) if i % hvd.size() == hvd.rank()]\nx, y = x[mine], y[mine]",
        "class Part(tf.keras.utils.Sequence):\n    def __len__(self):\n        return hvd.rank()\nx = Part()",
    ],
)
def test_data_that_are_or_may_be_split_by_rank_are_accepted(data: str) -> None:
    """The data are split by hand, by file or in a module, or generated at random as for a benchmark."""
    assert [] == [code for code in found(spoilt(FIT, (SLICED, f"import numpy as np\n{data}\n"))) if "data" in code]


def test_a_share_of_the_steps_on_data_in_an_order_of_its_own_is_advice() -> None:
    """Horovod's own examples do this; the same order on every rank would mean the same data."""
    drawn = "x = tf.data.Dataset.from_tensor_slices((x, y)).repeat().shuffle(1000).batch(32)\n"
    script = spoilt(FIT, (SLICED, drawn), ("model.fit(x, y,", "model.fit(x,"))
    assert ["data_sampled"] == found(script)
    seeded = spoilt(script, ("shuffle(1000)", "shuffle(1000, seed=1)"))
    assert ["data_not_sharded"] == found(seeded)
    globally = spoilt(script, ("hvd.init()\n", "hvd.init()\ntf.random.set_seed(1)\n"))
    assert ["data_not_sharded"] == found(globally)


def test_a_share_of_the_steps_on_arrays_is_advice() -> None:
    """Keras shuffles arrays, on each rank in another order."""
    assert ["data_sampled"] == found(spoilt(FIT, (SLICED, "")))


@pytest.mark.parametrize(
    "arguments",
    ["hvd.rank(), hvd.size()", "hvd.size(), hvd.local_rank()", "hvd.size(), 0", "num_shards=hvd.size(), index=0"],
)
def test_a_wrong_shard_is_found(arguments: str) -> None:
    """Arguments swapped, the local rank, or the same index for all."""
    script = spoilt(TAPE, ("shard(hvd.size(), hvd.rank())", f"shard({arguments})"))
    assert [("wrong_shard", f"dataset = dataset.shard({arguments})")] == [
        each for each in places(script) if each[0] != "data_not_sharded"
    ]


def test_a_slice_by_the_rank_within_the_node_is_found() -> None:
    """Two nodes would read the same records."""
    script = spoilt(FIT, (SLICED, SLICED.replace("hvd.rank()", "hvd.local_rank()")))
    assert ["wrong_shard", "wrong_shard"] == found(script)


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ("dataset.shuffle(100)", ["shard_after_shuffle"]),
        ("dataset.shuffle(100).map(len)", ["shard_after_shuffle"]),
        ("dataset.shuffle(100, seed=hvd.rank())", ["shard_after_shuffle"]),
        ("tf.data.Dataset.list_files('*.x')", ["shard_after_shuffle"]),
        ("dataset.shuffle(100, seed=7)", []),
        ("dataset.shuffle(100, 7)", []),
        ("tf.data.Dataset.list_files('*.x', shuffle=False)", []),
        ("tf.data.Dataset.list_files('*.x', seed=3)", []),
        ("dataset.map(len)", ["shard_late"]),
        ("dataset.batch(8)", ["shard_late"]),
        ("dataset.repeat()", []),
    ],
)
def test_the_order_of_shuffling_and_sharding(before: str, expected: list[str]) -> None:
    """Sharding different orders repeats and loses records; sharding late wastes work."""
    script = spoilt(TAPE, (SHARD, f"    dataset = {before}\n{SHARD}"))
    assert expected == found(script)


def test_files_shuffled_in_place_and_sliced_by_rank_are_found() -> None:
    """Unless every rank shuffles with the same seed."""
    sliced = "    import random\n    random.shuffle(files)\n    files = files[hvd.rank()::hvd.size()]\n"
    script = spoilt(TAPE, (SHARD, ""), ("    dataset = tf.data.TFR", f"{sliced}    dataset = tf.data.TFR"))
    assert ["shard_after_shuffle"] == found(script)
    assert [] == found(spoilt(script, ("random.shuffle(files)", "random.seed(1)\n    random.shuffle(files)")))


def test_steps_that_follow_from_each_ranks_own_share_are_advice() -> None:
    """They may differ by one, which the script does not show."""
    assert ["steps_may_differ"] == found(spoilt(FIT, (STEPS, "")))
