"""One attempt on one rank, from joining the others to the report."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import keras
import tensorflow as tf

from shared.progress import Progress
from training_job import collective
from training_job.checkpoints.position import Position
from training_job.checkpoints.store import CheckpointStore
from training_job.data.dataset import RankData
from training_job.data.decoding import image_shape
from training_job.evaluation import evaluate
from training_job.export import check_exported, export
from training_job.job import Job
from training_job.metrics import Sums, averages, no_sums
from training_job.models import build_model
from training_job.non_finite import check_finite
from training_job.process_environment import threads_per_rank
from training_job.rank_plan import SplitPlan
from training_job.report import write_report
from training_job.steps import Step, evaluation_step, training_step
from training_job.throughput import Throughput
from training_job.variables import all_variables, assign, to_arrays

PROGRESS_INTERVAL_S = 10.0
"""Within an epoch; each epoch's end is told anyhow."""
CHECKPOINTS_KEPT = 3


@dataclass(kw_only=True)
class Session:
    """What one rank holds while it trains."""

    job: Job
    world: collective.World
    model: keras.Model
    optimizer: keras.optimizers.Optimizer
    train: RankData
    validation: RankData
    checkpoints: CheckpointStore
    throughput: Throughput
    started_at: str = field(default_factory=lambda: datetime.now(UTC).isoformat())
    epochs: list[dict[str, float]] = field(default_factory=list)
    step: int = 0


def run(job: Job) -> None:
    """Train on this rank, together with the others. Raises TrainingError."""
    threads = threads_per_rank()
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    session = _start(job, collective.join())
    first = _resume(session)
    collective.broadcast_from_root(all_variables(session.model, session.optimizer))
    step, predict = training_step(session.model, session.optimizer), _predict_step(session.model)
    own = no_sums()
    for epoch in range(first, job.arguments.epochs):
        own = _epoch(session, epoch, step, predict)
    _finish(session, own if session.epochs and first < job.arguments.epochs else _evaluate(session, predict)[0])


def _start(job: Job, world: collective.World) -> Session:
    arguments = job.arguments
    keras.utils.set_random_seed(arguments.seed)
    shape = image_shape(job.manifest.features, arguments.image_feature)
    model = build_model(arguments.model_name, input_shape=shape, num_classes=arguments.num_classes)
    optimizer = keras.optimizers.get(
        {"class_name": arguments.optimizer, "config": {"learning_rate": arguments.learning_rate}}
    )
    optimizer.build(model.trainable_variables)
    return Session(
        job=job,
        world=world,
        model=model,
        optimizer=optimizer,
        train=_rank_data(job, job.training, world),
        validation=_rank_data(job, job.validation, world),
        checkpoints=CheckpointStore(Path(arguments.checkpoints), keep=CHECKPOINTS_KEPT),
        throughput=Throughput(job.training.batch.global_batch_size),
    )


def _rank_data(job: Job, plan: SplitPlan, world: collective.World) -> RankData:
    return RankData(
        manifest=job.manifest,
        folder=Path(job.arguments.data),
        plan=plan,
        rank=world.rank,
        image_feature=job.arguments.image_feature,
        label_feature=job.arguments.label_feature,
    )


def _resume(session: Session) -> int:
    """Load the latest checkpoint if there is one; return the first epoch to train."""
    found = session.checkpoints.latest()
    if found is None:
        return 0
    position, arrays = found
    assign(all_variables(session.model, session.optimizer), arrays)
    session.step, session.epochs = position.step, [dict(e) for e in position.epochs]
    return position.epoch


def _predict_step(model: keras.Model) -> Step:
    return evaluation_step(lambda images: model(images, training=False))


def _epoch(session: Session, epoch: int, step: Step, predict: Step) -> Sums:
    """Train one epoch, evaluate, tell, save; return this rank's sums of the evaluation."""
    began = time.monotonic()
    trained = averages(collective.summed(_train_epoch(session, epoch, step), "training"))
    duration_s = time.monotonic() - began
    own, validation = _evaluate(session, predict)
    session.epochs.append(
        {
            "epoch": epoch + 1,
            **trained,
            **{f"val_{name}": value for name, value in averages(validation).items()},
            "duration_s": round(duration_s, 4),
            "images_per_s": round(session.throughput.global_batch_size * session.job.training.steps / duration_s, 1),
        }
    )
    _tell(session, session.epochs[-1])
    if session.world.is_root:
        _save(session, epoch + 1)
    return own


def _train_epoch(session: Session, epoch: int, step: Step) -> Sums:
    sums, told = no_sums(), time.monotonic()
    for batch in session.train.training_epoch(epoch, session.job.arguments.seed):
        sums += check_finite(step(batch).numpy(), step=session.step + 1, rank=session.world.rank)
        session.step += 1
        session.throughput.step_done()
        if time.monotonic() - told > PROGRESS_INTERVAL_S:
            told = time.monotonic()
            _tell(session, {"epoch": epoch, **averages(sums), "images_per_s": session.throughput.images_per_s or 0.0})
    return sums


def _evaluate(session: Session, predict: Step) -> tuple[Sums, Sums]:
    return evaluate(predict, session.validation.evaluation())


def _tell(session: Session, epoch: dict[str, float]) -> None:
    if not session.world.is_root:
        return
    progress = Progress(
        epoch=int(epoch["epoch"]),
        epochs=session.job.arguments.epochs,
        step=session.step,
        loss=epoch["loss"],
        accuracy=epoch["accuracy"],
        val_loss=epoch.get("val_loss"),
        val_accuracy=epoch.get("val_accuracy"),
        images_per_s=epoch["images_per_s"],
    )
    print(progress.to_line(), flush=True)


def _save(session: Session, epochs_finished: int) -> None:
    position = Position(
        epoch=epochs_finished,
        step_of_epoch=0,
        step=session.step,
        seed=session.job.arguments.seed,
        fingerprint=session.job.manifest.fingerprint,
        epochs=tuple(session.epochs),
    )
    session.checkpoints.save(position, to_arrays(all_variables(session.model, session.optimizer)))


def _finish(session: Session, own: Sums) -> None:
    """Export, check and report on the root, while the others wait."""
    if session.world.is_root:
        folder = Path(session.job.arguments.model)
        export(session.model, folder)
        check_exported(folder, session.validation.evaluation(), own)
        write_report(session)
    collective.wait_for_all("the end")
