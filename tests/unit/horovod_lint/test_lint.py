"""Whole scripts as teams write them: correct ones are clean, and one mistake is one finding."""

from __future__ import annotations

import json
import sys

import pytest

from tests.architecture.trees import OUR_PACKAGES, run_python
from tests.unit.horovod_lint.real_scripts import ALIASES, DECORATED, LOOP, SEQUENCE, TORCH_LOOP, TRAINER
from tests.unit.horovod_lint.scripts import found, spoilt

INFINIBAND = "Standard_ND96asr_v4"
CHIEF_SAVES = "        if self.is_chief:\n            self.save()\n"
CHIEF_LISTS = "        if self.is_chief:\n            cbs += [\n"
SHARDS = "            files = files.shard(self.world, self.rank)\n"
BEST = '[tf.keras.callbacks.ModelCheckpoint("best.h5", save_best_only=True)]'
OWN_CALLBACK = "        if hvd.rank() == 0:\n            with open(self.path"
SEEDED = "    torch.manual_seed(42)\n"
PARAMETERS = "    hvd.broadcast_parameters(model.state_dict(), root_rank=0)\n"
STATE = "    hvd.broadcast_optimizer_state(optimizer, root_rank=0)\n"
UNWRAPPED = ("optimizer = hvd.DistributedOptimizer(\n        optimizer,", "unused = dict(")
LOOP_SHARDS = "    if train and hvd.size() > 1:\n        ds = ds.shard(num_shards=hvd.size(), index=hvd.rank())\n"
AVERAGED = "hvd.allreduce(tf.reduce_mean([loss_fn(y, model(x)) for x, y in val]))"


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (TRAINER, []),
        (ALIASES, []),
        (DECORATED, ["infiniband_disabled"]),
        (TORCH_LOOP, ["framework_partly_checked"]),
        (LOOP, []),
        (SEQUENCE, ["steps_may_differ"]),
    ],
)
def test_correct_scripts_have_only_the_expected_findings(script: str, expected: list[str]) -> None:
    """The expected findings are intended in these scripts."""
    assert expected == found(script, vm_size=INFINIBAND)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ((CHIEF_SAVES, "        self.save()\n"), ["written_by_every_rank"]),
        (
            (CHIEF_LISTS, "        if True:\n            cbs += [\n"),
            ["written_by_every_rank", "logged_by_every_rank"],
        ),
        (("            hvd.callbacks.MetricAverageCallback(),\n", ""), ["metrics_not_averaged"] * 2),
        ((SHARDS, "            files = files.shuffle(100)\n"), ["data_sampled"]),
        (("            hvd.callbacks.BroadcastGlobalVariablesCallback(0),\n", ""), ["no_initial_broadcast"]),
        (("epochs=self.args.epochs,", "epochs=self.args.epochs // self.world,"), ["epochs_divided"]),
        (("        hvd.init()\n", ""), ["missing_init"]),
        (("        opt = hvd.DistributedOptimizer(opt)\n", ""), ["optimizer_not_distributed"]),
        (('os.environ.update({"TF_USE_LEGACY_KERAS": "1", ', "os.environ.update({"), ["keras3_incompatible"]),
    ],
)
def test_a_class_that_holds_everything(change: tuple[str, str], expected: list[str]) -> None:
    """Its method ``save`` calls a model's, and its callbacks come from a method that appends to a list."""
    assert expected == found(spoilt(TRAINER, change))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ((" MAC(),", ""), "metrics_not_averaged"),
        (("DO(tf.keras.optimizers.Adam(learning_rate=1e-3 * hvd.size()))", '"adam"'), "optimizer_not_distributed"),
        (
            ("    if hvd.rank() == 0:\n        callbacks", "    if outdir:\n        callbacks"),
            "written_by_every_rank",
        ),
        (("            if i % hvd.size() == hvd.rank():\n", "            if i:\n"), "data_not_sharded"),
    ],
)
def test_renamed_imports(change: tuple[str, str], expected: str) -> None:
    """Renamed functions are recognised, and a lambda in a dataset's ``map`` hides nothing."""
    assert [expected] == found(spoilt(ALIASES, change))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("@rank_zero_only\n", ""), ["written_by_every_rank"] * 2),
        ((OWN_CALLBACK, OWN_CALLBACK.replace("hvd.rank() == 0", "logs")), ["written_by_every_rank"]),
        ((", seed=42", ""), ["shard_after_shuffle"]),
        (("    ds = ds.shard(hvd.size(), hvd.rank())\n", ""), ["data_sampled"]),
        (("epochs=epochs,", "epochs=max(1, int(epochs / hvd.size())),"), ["epochs_divided"]),
        ((f"{BEST} if hvd.rank() == 0 else []", BEST), ["written_by_every_rank"]),
        (("    score = hvd", "    if hvd.rank() == 0:\n        score = hvd"), ["collective_on_some_ranks"]),
        (('TF_USE_LEGACY_KERAS="1", ', ""), ["keras3_incompatible"]),
    ],
)
def test_decorators_and_a_command_line_of_clicks(change: tuple[str, str], expected: list[str]) -> None:
    """Values from a decorator are the same on every rank; ``os.environ.update`` may set a variable by keyword."""
    assert expected == found(spoilt(DECORATED, change))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([("    if hvd.rank() == 0:\n        filepath", "    if True:\n        filepath")], "written_by_every_rank"),
        ([("loader = DataLoader(dataset, batch_size=32, sampler=sampler,", "loader = DataLoader(dataset, 32,")],
         "data_not_sharded"),
        ([UNWRAPPED], "optimizer_not_distributed"),
        ([(SEEDED, ""), (PARAMETERS, ""), (STATE, "")], "no_initial_broadcast"),
    ],
)  # fmt: skip
def test_a_loop_of_pytorch(changes: list[tuple[str, str]], expected: str) -> None:
    """Averaging a metric is not averaging gradients; broadcasting an epoch is not broadcasting weights."""
    assert ["framework_partly_checked", expected] == found(spoilt(TORCH_LOOP, *changes))


def test_weights_may_be_broadcast_one_by_one() -> None:
    """Older scripts do so."""
    one_by_one = "    for p in model.parameters():\n        hvd.broadcast(p.data, root_rank=0)\n"
    script = spoilt(TORCH_LOOP, (SEEDED, ""), (PARAMETERS, one_by_one), (STATE, ""))
    assert ["framework_partly_checked"] == found(script)


def test_gradients_may_be_averaged_one_by_one() -> None:
    """Scripts without Horovod's optimizer do so."""
    averaged = (
        "        loss.backward()\n        for p in model.parameters():\n            hvd.allreduce_(p.grad.data)\n"
    )
    assert ["framework_partly_checked"] == found(
        spoilt(TORCH_LOOP, UNWRAPPED, ("        loss.backward()\n", averaged))
    )


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([("        tape = hvd.DistributedGradientTape(tape, compression=hvd.Compression.fp16)\n", "")],
         "tape_not_distributed"),
        ([(LOOP_SHARDS, ""), ("train.take(1000 // hvd.size())", "train.take(1000)")], "data_not_sharded"),
        ([(AVERAGED, AVERAGED[len("hvd.allreduce("):-1])], "metrics_not_averaged"),
    ],
)  # fmt: skip
def test_a_loop_by_hand(changes: list[tuple[str, str]], expected: str) -> None:
    """A function named ``broadcast`` does not average a metric."""
    assert [expected] == found(spoilt(LOOP, *changes))


def test_a_sequence_that_does_not_depend_on_the_rank() -> None:
    """Its index comes from Keras and does not depend on the rank."""
    assert ["data_not_sharded"] == found(spoilt(SEQUENCE, (", rank=RANK, size=SIZE)", ")")))


LIST_LOADED = "import json, sys, horovod_lint; print(json.dumps(sorted({n.partition('.')[0] for n in sys.modules})))"


def test_importing_the_lint_loads_only_shared_and_the_standard_library() -> None:
    """Neither azure nor the function app: anyone can use it alone, and it starts quickly."""
    ended = run_python(LIST_LOADED)
    assert (0, "") == (ended.returncode, ended.stderr)
    loaded = set(json.loads(ended.stdout)) - set(sys.stdlib_module_names)
    assert {"horovod_lint", "shared"} == loaded & {*OUR_PACKAGES, "azure", "numpy", "pydantic", "crc32c"}
