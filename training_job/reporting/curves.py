"""Loss and accuracy by epoch, as a picture."""

from __future__ import annotations

from pathlib import Path

from shared.training_report import TrainingReport

_PANELS = (("loss", "val_loss"), ("accuracy", "val_accuracy", "val_auc", "val_top5_accuracy"))


def draw_curves(report: TrainingReport, path: Path) -> None:
    """Draw the report's metrics over its epochs into a PNG."""
    # Here and not above: half a second, and the root needs it once. Figure and canvas without pyplot, which
    # would look for a screen and keep figures alive.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    epochs = [record["epoch"] for record in report.epochs]
    for axis, names in zip(figure.subplots(1, 2), _PANELS, strict=True):
        for name in names:
            if report.epochs and name in report.epochs[0]:
                axis.plot(epochs, [record[name] for record in report.epochs], marker=".", label=name)
        axis.set_xlabel("epoch")
        axis.grid(visible=True, alpha=0.3)
        axis.legend()
    figure.suptitle(f"{report.run_id}: {report.world_size} ranks")
    path.parent.mkdir(parents=True, exist_ok=True)
    FigureCanvasAgg(figure).print_png(str(path))
