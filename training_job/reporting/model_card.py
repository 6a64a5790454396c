"""The model card: what a person should know before using the model, in one page beside it."""

from __future__ import annotations

from pathlib import Path

from shared.training_report import TrainingReport
from training_job.session import Session


def write_model_card(session: Session, report: TrainingReport, path: Path) -> None:
    """Write the card as Markdown."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(model_card(session, report))


def model_card(session: Session, report: TrainingReport) -> str:
    """Return the card's text."""
    manifest, options = session.job.manifest, session.job.arguments
    shape = " x ".join(map(str, session.inputs.model_shape))
    outputs = "one logit, above 0 for class 1" if options.task == "binary" else f"{options.num_classes} logits"
    metrics = "\n".join(f"| {name} | {value:.4f} |" for name, value in sorted(report.metrics.items()))
    return f"""# {session.model.name}

Trained by run `{report.run_id}` on dataset version `{manifest.dataset}/{manifest.version}`
(generation {manifest.generation}, fingerprint `{report.fingerprint}`).

## Use
`model.keras` and `saved_model/` (endpoint `serve`) map images, float32 [batch, {shape}] with values of 0 to 255
as they are decoded, to {outputs}. They normalise by themselves.

## Evaluation
Of the weights after epoch {report.details["exported_epoch"]}, averaged over all records of each split.

| metric | value |
|---|---|
{metrics}

## Training
{len(report.epochs)} epochs over {session.job.training.num_records} records of split `{options.train_split}`, \
{report.world_size} ranks on {report.num_nodes} nodes, global batch {session.job.training.batch.global_batch_size}, \
{options.optimizer} at {options.learning_rate:g}, seed {report.seed}.
Augmentation: {options.augmentation}. From {report.started_at} to {report.ended_at}.

## Limits
It was evaluated on split `{options.validation_split}` of the same dataset version and on nothing else. It says
nothing about images of another origin, and its logits are not calibrated probabilities.
"""
