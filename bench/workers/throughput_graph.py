"""Draw throughput by model as a PNG: a pair of bars for each model, one rank and two."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

_WIDTH = 0.38
_COLOURS = ("#9fb8d8", "#1f4e8c")


def main() -> None:
    """Read what to draw from standard input."""
    request = json.load(sys.stdin)
    draw(request["images_per_s"], Path(request["path"]), request["title"])


def draw(images_per_s: Mapping[str, Sequence[float]], path: Path, title: str) -> None:
    """Draw the bars, each with its value, and the scaling efficiency above each pair."""
    figure = Figure(figsize=(9, 4.8), layout="constrained")
    axis = figure.subplots()
    for which, (colour, label) in enumerate(zip(_COLOURS, ("1 rank", "2 ranks"), strict=True)):
        places = [i + (which - 0.5) * _WIDTH for i in range(len(images_per_s))]
        bars = axis.bar(places, [rates[which] for rates in images_per_s.values()], _WIDTH, color=colour, label=label)
        axis.bar_label(bars, fmt="%.0f", fontsize=8, padding=1)
    efficiencies = [two / (2 * one) for one, two in images_per_s.values()]
    names = [f"{name}\n{e:.0%} of twice" for name, e in zip(images_per_s, efficiencies, strict=True)]
    axis.set_xticks(range(len(names)), names)
    axis.set_ylabel("images per second, all ranks")
    axis.margins(y=0.12)
    axis.grid(axis="y", alpha=0.3)
    axis.set_axisbelow(True)
    axis.legend()
    axis.set_title(title, fontsize=10)
    FigureCanvasAgg(figure).print_png(str(path))


if __name__ == "__main__":
    main()
