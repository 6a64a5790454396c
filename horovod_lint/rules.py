"""The rules of the lint: stable codes, severities, and the texts that findings show.

A test compares the table in ``docs/lint.md`` with this file. ``checks/`` contains the code that applies the rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How much a finding matters."""

    ERROR = "error"
    """The result is wrong, or the job hangs or fails: the script is not submitted."""
    WARNING = "warning"
    """The script is slow, wasteful or misleading."""
    ADVICE = "advice"
    """May be intended; a script with advice only is clean."""


class RuleCode(StrEnum):
    """Stable names: comments in scripts contain them and programs read them; never rename one."""

    HOROVOD_NOT_USED = "horovod_not_used"
    HOROVOD_WITHOUT_MPI = "horovod_without_mpi"
    TF_DISTRIBUTE = "tf_distribute"
    MISSING_INIT = "missing_init"
    USED_BEFORE_INIT = "used_before_init"
    KERAS3_INCOMPATIBLE = "keras3_incompatible"
    CALLBACK_INCOMPATIBLE = "callback_incompatible"
    OPTIMIZER_NOT_DISTRIBUTED = "optimizer_not_distributed"
    TAPE_NOT_DISTRIBUTED = "tape_not_distributed"
    NO_INITIAL_BROADCAST = "no_initial_broadcast"
    COLLECTIVE_ON_SOME_RANKS = "collective_on_some_ranks"
    DATA_NOT_SHARDED = "data_not_sharded"
    WRONG_SHARD = "wrong_shard"
    SHARD_AFTER_SHUFFLE = "shard_after_shuffle"
    METRICS_NOT_AVERAGED = "metrics_not_averaged"
    EPOCHS_DIVIDED = "epochs_divided"
    WRITTEN_BY_EVERY_RANK = "written_by_every_rank"
    WRONG_GPU = "wrong_gpu"
    ARGUMENTS_NOT_TAKEN = "arguments_not_taken"
    REPORT_NOT_WRITTEN = "report_not_written"
    GPU_NOT_PINNED = "gpu_not_pinned"
    INFINIBAND_DISABLED = "infiniband_disabled"
    LOGGED_BY_EVERY_RANK = "logged_by_every_rank"
    SHARD_LATE = "shard_late"
    STEPS_NOT_DIVIDED = "steps_not_divided"
    IGNORED_WITHOUT_EFFECT = "ignored_without_effect"
    LEARNING_RATE_NOT_SCALED = "learning_rate_not_scaled"
    DATA_SAMPLED = "data_sampled"
    STEPS_MAY_DIFFER = "steps_may_differ"
    FRAMEWORK_PARTLY_CHECKED = "framework_partly_checked"


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One rule, with the texts that are shown with its findings."""

    severity: Severity
    what: str
    why: str
    fix: str


def _error(what: str, why: str, fix: str) -> Rule:
    return Rule(severity=Severity.ERROR, what=what, why=why, fix=fix)


def _warning(what: str, why: str, fix: str) -> Rule:
    return Rule(severity=Severity.WARNING, what=what, why=why, fix=fix)


def _advice(what: str, why: str, fix: str) -> Rule:
    return Rule(severity=Severity.ADVICE, what=what, why=why, fix=fix)


_C = RuleCode
RULES: Mapping[RuleCode, Rule] = {
    _C.HOROVOD_NOT_USED: _error(
        "The script trains a model, but nothing connects the ranks.",
        "The job starts one process for each GPU; without Horovod each process trains a separate model.",
        "Call `hvd.init()` and distribute the optimizer or the tape.",
    ),
    _C.HOROVOD_WITHOUT_MPI: _error(
        "The script uses Horovod, but the pipeline's `train.distribution` is not `mpi`.",
        "Horovod then has no launcher to connect its ranks: each process trains a separate model.",
        "Remove `train.distribution`, or write `train.distribution: mpi`.",
    ),
    _C.TF_DISTRIBUTE: _error(
        "The script uses a `tf.distribute` strategy, but an MPI job starts it.",
        "Each rank builds its own strategy over all GPUs that it sees; the ranks do not train together.",
        "Write `train.distribution: tensorflow` for `MultiWorkerMirroredStrategy`, or use Horovod alone.",
    ),
    _C.MISSING_INIT: _error(
        "The script uses Horovod but never initialises it.",
        "Every other Horovod call raises ValueError before `hvd.init()`.",
        "Call `hvd.init()` once, before any other Horovod call.",
    ),
    _C.USED_BEFORE_INIT: _error(
        "The script calls Horovod before `hvd.init()`.",
        "The call raises ValueError: Horovod has not been initialized.",
        "Move `hvd.init()` before it.",
    ),
    _C.KERAS3_INCOMPATIBLE: _error(
        "The script uses Horovod's Keras support on Keras 3, which TensorFlow 2.16 and later install.",
        "Horovod 0.28.1 was written for Keras 2. On Keras 3 its `DistributedOptimizer` averages nothing and reports "
        "nothing; its callbacks raise AttributeError, and so does passing it Keras variables.",
        "Write the training step yourself: pass `[v.value for v in variables]` to the `gradient` of "
        "`hvd.DistributedGradientTape(tape)` and to `hvd.broadcast_variables`, then call "
        '`optimizer.apply(gradients, variables)`. Or select Keras 2: set `TF_USE_LEGACY_KERAS: "1"` in the pipeline, '
        "and use `tf.keras` and `horovod.tensorflow.keras`, never the package `keras`.",
    ),
    _C.CALLBACK_INCOMPATIBLE: _error(
        "The script uses a callback of Horovod that fails although Keras 2 is selected.",
        "Horovod 0.28.1 uses the backend of Keras 3, which is installed in addition to Keras 2: "
        "`MetricAverageCallback`, "
        "`LearningRateWarmupCallback` and `LearningRateScheduleCallback` raise AttributeError.",
        'Set `TF_USE_LEGACY_KERAS: "1"` in the pipeline, and `callback.backend = tf.keras.backend` on each of them. '
        "Pass `momentum_correction=False` to those that change the learning rate.",
    ),
    _C.OPTIMIZER_NOT_DISTRIBUTED: _error(
        "The optimizer that trains is not Horovod's.",
        "Gradients are not averaged: each rank trains a separate model, and only the root's model is kept.",
        "Pass `hvd.DistributedOptimizer(optimizer)` to `compile`, or use it in the training loop.",
    ),
    _C.TAPE_NOT_DISTRIBUTED: _error(
        "The script applies gradients of a plain `tf.GradientTape`.",
        "Gradients are not averaged: each rank trains a separate model, and only the root's model is kept.",
        "After recording, wrap the tape, `tape = hvd.DistributedGradientTape(tape)`, and take the gradients from it.",
    ),
    _C.NO_INITIAL_BROADCAST: _error(
        "The ranks never receive the root's initial weights.",
        "Each rank starts from different random weights, so averaged gradients update different models.",
        "Broadcast once at the start: `hvd.broadcast_variables(variables, root_rank=0)`, or put "
        "`BroadcastGlobalVariablesCallback(0)` first in `callbacks`.",
    ),
    _C.COLLECTIVE_ON_SOME_RANKS: _error(
        "Only some ranks reach a collective operation.",
        "Horovod waits until every rank takes part: the job hangs until its time limit.",
        "Make the call on every rank, and let only the use of its result depend on the rank.",
    ),
    _C.DATA_NOT_SHARDED: _error(
        "Every rank trains on the same data.",
        "Every rank repeats the same work: more GPUs do not make training faster.",
        "Call `dataset.shard(hvd.size(), hvd.rank())` as early as possible, or slice: `x[hvd.rank()::hvd.size()]`.",
    ),
    _C.WRONG_SHARD: _error(
        "Data is not split by rank and size.",
        "Some records are read by several ranks, others by no rank.",
        "Use `dataset.shard(num_shards=hvd.size(), index=hvd.rank())`.",
    ),
    _C.SHARD_AFTER_SHUFFLE: _error(
        "Data is shuffled in a different order on every rank and sharded afterwards.",
        "Each rank takes every n-th record of a different order: some records are read twice, others never.",
        "Shard first, then shuffle; or shuffle with the same `seed` on every rank.",
    ),
    _C.METRICS_NOT_AVERAGED: _error(
        "The metrics of a single rank control the training.",
        "Ranks decide differently: one stops and the others wait for it forever, learning rates diverge, or the best "
        "checkpoint is chosen by one rank's share of the data.",
        "Average first: put a callback that replaces `logs` with their `hvd.allreduce` before the one that decides; "
        "on "
        "Keras 2 also `hvd.callbacks.MetricAverageCallback()`, with its `backend` set to `tf.keras.backend`.",
    ),
    _C.EPOCHS_DIVIDED: _error(
        "The number of epochs is divided by the number of ranks.",
        "An epoch is one pass over all data by all ranks together: fewer epochs mean less training, not more speed.",
        "Divide the data or the steps of an epoch by `hvd.size()`, and keep the number of epochs.",
    ),
    _C.WRITTEN_BY_EVERY_RANK: _error(
        "Every rank writes the same file.",
        "Ranks overwrite each other; the result may be a mixture that cannot be read.",
        "Write on the root only, `if hvd.rank() == 0:`, or put the rank into the file's name.",
    ),
    _C.WRONG_GPU: _error(
        "The script picks a GPU by the rank within the job, not within the node.",
        "On the second node the rank is larger than the number of GPUs there.",
        "Use `gpus[hvd.local_rank()]`.",
    ),
    _C.ARGUMENTS_NOT_TAKEN: _error(
        "The script's parser does not accept the arguments that the job passes.",
        "argparse exits with status 2 at a name or a value that it does not accept, after the nodes have started and "
        "cost money.",
        "Add them to the parser, correct `train.arguments`, use `parse_known_args()`, or set "
        "`train.pass_paths: false` and read the paths from the variables `LANDFALL_DATA`, `LANDFALL_MANIFEST`, "
        "`LANDFALL_OUTPUT`, `LANDFALL_CHECKPOINT` and `LANDFALL_REPORT`.",
    ),
    _C.REPORT_NOT_WRITTEN: _error(
        "The script trains for a pipeline that registers models, but writes no training report.",
        "The gate decides on the report's metrics: without a report, the training costs money and no model is "
        "registered.",
        'On the root, write the metrics as JSON, `{"val_accuracy": 0.93}`, into the file that `--report` or '
        "`LANDFALL_REPORT` names.",
    ),
    _C.GPU_NOT_PINNED: _warning(
        "The script does not pick a GPU for each process.",
        "Each process allocates memory on all GPUs of its node, and all compute on the first one.",
        "Call `tf.config.set_visible_devices(gpus[hvd.local_rank()], 'GPU')` before anything runs on a GPU.",
    ),
    _C.INFINIBAND_DISABLED: _warning(
        "`NCCL_IB_DISABLE` is set on a VM size with InfiniBand.",
        "Gradients are then sent over Ethernet, although the size costs more because of its InfiniBand.",
        "Do not set the variable: Landfall sets it for sizes without InfiniBand.",
    ),
    _C.LOGGED_BY_EVERY_RANK: _warning(
        "Every rank writes to the same metrics log.",
        "The curves of all ranks are mixed, every rank spends time on writing, and MLflow gets each value once per "
        "rank.",
        "Log on the root only: `if hvd.rank() == 0:`.",
    ),
    _C.SHARD_LATE: _warning(
        "Data is sharded after it was decoded or batched.",
        "Every rank reads and decodes all records, then discards most of them.",
        "Shard the file names or the raw records, before `map` and `batch`.",
    ),
    _C.STEPS_NOT_DIVIDED: _warning(
        "Each rank runs as many steps as a single process would.",
        "An epoch takes as long as without Horovod, and passes over the data once for each rank.",
        "Use `steps_per_epoch=num_batches // hvd.size()`.",
    ),
    _C.IGNORED_WITHOUT_EFFECT: _warning(
        "A `landfall: ignore` comment has no effect.",
        "It suggests a finding that does not exist, or one that is not suppressed.",
        "Write `# landfall: ignore[code] the reason` on the line of the finding, or remove the comment.",
    ),
    _C.LEARNING_RATE_NOT_SCALED: _advice(
        "The learning rate does not depend on the number of ranks.",
        "The global batch grows with the number of ranks; a rate chosen for one process is usually too small for it.",
        "Scale the rate, `0.001 * hvd.size()`, with a warm-up (Goyal et al. 2017).",
    ),
    _C.DATA_SAMPLED: _advice(
        "Each rank draws from all data in its own order, for its share of the steps.",
        "An epoch is then a random sample: some records are read several times, others never.",
        "Use `dataset.shard(hvd.size(), hvd.rank())` if each record should be read once in an epoch.",
    ),
    _C.STEPS_MAY_DIFFER: _advice(
        "The number of steps in an epoch depends on each rank's own share of the data.",
        "If shares differ by one batch, one rank waits for a step that the others never run, and the job fails.",
        "Run the same number of steps on every rank: `steps_per_epoch=`, `take`, or `repeat` with a number of steps.",
    ),
    _C.FRAMEWORK_PARTLY_CHECKED: _advice(
        "The script uses Horovod for PyTorch, MXNet, Spark or Ray.",
        "Some rules only know TensorFlow under `mpirun`, and Landfall's image contains TensorFlow only.",
        "See docs/lint.md for what is checked; publish an image of your own with `landfall publish --image`.",
    ),
}
