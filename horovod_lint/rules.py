"""Every rule that a training script is held to: stable codes, how much each matters, why, and what to write instead.

The table in ``docs/lint.md`` is this file; a test compares them. How a rule is looked for is in ``checks/``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How much a finding matters."""

    ERROR = "error"
    """The result is wrong, or the job hangs or fails: a submission is refused."""
    WARNING = "warning"
    """Slow, wasteful, or misleading to people."""
    ADVICE = "advice"
    """May be meant so; a script with advice only is clean."""


class RuleCode(StrEnum):
    """Stable names: people write them into comments and programs read them; never rename one."""

    HOROVOD_NOT_USED = "horovod_not_used"
    TF_DISTRIBUTE = "tf_distribute"
    MISSING_INIT = "missing_init"
    USED_BEFORE_INIT = "used_before_init"
    KERAS3_INCOMPATIBLE = "keras3_incompatible"
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
    """One rule; texts are for people, one line each."""

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
        "A model is trained, and nothing connects the ranks.",
        "The job starts one process for each GPU; without Horovod each of them trains a model of its own, alone.",
        "Call `hvd.init()` and distribute the optimizer or the tape.",
    ),
    _C.TF_DISTRIBUTE: _error(
        "A strategy of `tf.distribute` in a script that an MPI job starts.",
        "Each rank builds a strategy of its own over all GPUs that it sees; the ranks do not train together.",
        "Use Horovod alone, or give `MultiWorkerMirroredStrategy` a `TF_CONFIG` made of the rank.",
    ),
    _C.MISSING_INIT: _error(
        "Horovod is used and never initialised.",
        "Every other call of Horovod raises ValueError before `hvd.init()`.",
        "Call `hvd.init()` once, first.",
    ),
    _C.USED_BEFORE_INIT: _error(
        "A call of Horovod stands before `hvd.init()`.",
        "It raises ValueError: Horovod has not been initialized.",
        "Move `hvd.init()` before it.",
    ),
    _C.KERAS3_INCOMPATIBLE: _error(
        "Horovod's Keras support on Keras 3, which TensorFlow 2.16 and later bring.",
        "Horovod 0.28.1 was written for Keras 2. On Keras 3 its `DistributedOptimizer` averages nothing and says "
        "nothing; its callbacks, and Keras' own variables handed to it, raise AttributeError.",
        "Write the step yourself: `hvd.DistributedGradientTape(tape)` with `[v.value for v in variables]` for its "
        "`gradient` and for `hvd.broadcast_variables`, then `optimizer.apply(gradients, variables)`.",
    ),
    _C.OPTIMIZER_NOT_DISTRIBUTED: _error(
        "The optimizer that trains is not Horovod's.",
        "Gradients are not averaged: each rank trains a model of its own, and all but the root's are thrown away.",
        "Hand `compile` (or the loop) the result of `hvd.DistributedOptimizer(optimizer)`.",
    ),
    _C.TAPE_NOT_DISTRIBUTED: _error(
        "Gradients of a plain `tf.GradientTape` are applied.",
        "Gradients are not averaged: each rank trains a model of its own, and all but the root's are thrown away.",
        "Wrap it after recording, `tape = hvd.DistributedGradientTape(tape)`, and take the gradients from that.",
    ),
    _C.NO_INITIAL_BROADCAST: _error(
        "The ranks never get the root's initial weights.",
        "Each rank starts from random weights of its own; averaged gradients then move different models.",
        "Broadcast once at the start: `hvd.broadcast_variables(variables, root_rank=0)`, or "
        "`BroadcastGlobalVariablesCallback(0)` first in `callbacks`.",
    ),
    _C.COLLECTIVE_ON_SOME_RANKS: _error(
        "A collective operation that only some ranks reach.",
        "Horovod waits until every rank takes part: the job hangs until its time limit.",
        "Let every rank make the call, and only what follows from it depend on the rank.",
    ),
    _C.DATA_NOT_SHARDED: _error(
        "Every rank trains on the same data.",
        "The work is done once for each rank instead of shared out: more GPUs bring no speed, only repetition.",
        "`dataset.shard(hvd.size(), hvd.rank())`, as early as possible, or a slice: `x[hvd.rank()::hvd.size()]`.",
    ),
    _C.WRONG_SHARD: _error(
        "Data are shared out by something else than rank and size.",
        "Some records are read by several ranks, or by none.",
        "`dataset.shard(num_shards=hvd.size(), index=hvd.rank())`.",
    ),
    _C.SHARD_AFTER_SHUFFLE: _error(
        "Data are shuffled in another order on every rank, and sharded afterwards.",
        "Each rank takes every n-th record of another order: some records are read twice, others never.",
        "Shard first, then shuffle; or shuffle with the same `seed` on every rank.",
    ),
    _C.METRICS_NOT_AVERAGED: _error(
        "A decision about the training is made on one rank's own metrics.",
        "Ranks decide differently: one stops and the others wait for it for ever, rates part, or the best "
        "checkpoint is the best of one rank's share.",
        "Average first: `hvd.callbacks.MetricAverageCallback()` before the callback that decides (Keras 2), or a "
        "callback of your own that replaces `logs` by `hvd.allreduce` of them.",
    ),
    _C.EPOCHS_DIVIDED: _error(
        "Epochs are divided by the number of ranks.",
        "An epoch is a pass over all data, whoever makes it: the model is trained less, and the speed-up is that.",
        "Divide the data or the steps of an epoch by `hvd.size()`, and leave the epochs as they are.",
    ),
    _C.WRITTEN_BY_EVERY_RANK: _error(
        "Every rank writes the same file.",
        "Ranks write over each other; what is left may be a mixture that nobody can read.",
        "Write from the root: `if hvd.rank() == 0:`, or under a name with the rank in it.",
    ),
    _C.WRONG_GPU: _error(
        "A GPU is picked by the rank within the job, not within the node.",
        "On the second node the rank is larger than the number of GPUs there.",
        "`gpus[hvd.local_rank()]`.",
    ),
    _C.ARGUMENTS_NOT_TAKEN: _error(
        "The script's parser does not know the arguments of the job that it is to run in.",
        "argparse ends with exit status 2 at the first of them, once the nodes have started and are paid for.",
        "`parse_known_args()`, or `JobArguments.from_argv(sys.argv[1:])` of `shared.job_arguments` for all of them.",
    ),
    _C.GPU_NOT_PINNED: _warning(
        "No GPU is picked for the process.",
        "Each process takes memory on all GPUs of its node, and all compute on the first one.",
        "`tf.config.set_visible_devices(gpus[hvd.local_rank()], 'GPU')` before anything runs on a GPU.",
    ),
    _C.INFINIBAND_DISABLED: _warning(
        "`NCCL_IB_DISABLE` on a VM size with InfiniBand.",
        "Gradients then travel over Ethernet, on a machine that is paid for its InfiniBand.",
        "Leave the variable alone: Landfall sets it where a size has no InfiniBand.",
    ),
    _C.LOGGED_BY_EVERY_RANK: _warning(
        "Every rank writes to the same log of metrics.",
        "Curves of all ranks are mixed, and every rank pays for writing them; MLflow sees each value once per rank.",
        "Log from the root: `if hvd.rank() == 0:`.",
    ),
    _C.SHARD_LATE: _warning(
        "Data are sharded after they were decoded or batched.",
        "Every rank reads and decodes all records to throw most of them away.",
        "Shard the file names or the raw records, before `map` and `batch`.",
    ),
    _C.STEPS_NOT_DIVIDED: _warning(
        "Each rank makes as many steps as one process alone would.",
        "An epoch is as long as without Horovod, and sees the data once for each rank.",
        "`steps_per_epoch=num_batches // hvd.size()`.",
    ),
    _C.IGNORED_WITHOUT_EFFECT: _warning(
        "A `landfall: ignore` comment that ignores nothing.",
        "Whoever reads it believes in a finding that is not there, or in one that is not ignored.",
        "Write `# landfall: ignore[code] the reason` on the line of the finding, or remove it.",
    ),
    _C.LEARNING_RATE_NOT_SCALED: _advice(
        "The learning rate does not depend on the number of ranks.",
        "The global batch grows with the ranks; the rate that suited one process is usually too small for it.",
        "Scale it, `0.001 * hvd.size()`, with a warm-up (Goyal et al. 2017).",
    ),
    _C.DATA_SAMPLED: _advice(
        "Each rank draws from all data in an order of its own, for a share of the steps.",
        "An epoch is then a sample: some records are seen several times, others not at all.",
        "`dataset.shard(hvd.size(), hvd.rank())` where each record should be seen once in an epoch.",
    ),
    _C.STEPS_MAY_DIFFER: _advice(
        "How many steps an epoch has follows from each rank's own share.",
        "Where shares differ by a batch, one rank waits for a step that the others never make, and the job fails.",
        "Give all ranks the same number: `steps_per_epoch=`, `take`, or `repeat` with a count of steps.",
    ),
    _C.FRAMEWORK_PARTLY_CHECKED: _advice(
        "The script uses Horovod for PyTorch, MXNet, Spark or Ray.",
        "Some rules know TensorFlow under `mpirun` only, and the image that Landfall publishes has nothing else.",
        "See docs/lint.md for what is looked at; publish an image of your own with `landfall publish --image`.",
    ),
}
