"""Write a pipeline file from a sample of the data; a comment on each value says where it came from."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cli.init.sampling import Sample, Seen
from shared.safe_text import counted

if TYPE_CHECKING:
    from function_app.config.layouts import Layout

MARK = "CHECK:"
"""Begins a comment on a value that the data does not show."""
SMALL_PIXELS = 64
"""Images up to this size are trained with the small network."""
MODEL_PIXELS = 224
EPOCHS = 10
MIN_STEPS = 8
"""Minimum number of steps of an epoch with the proposed batch size."""
MAX_BATCH = 64
MAX_SHOWN = 10
"""Names of classes in a comment."""
MAX_CLASSES = 30_000
"""A feature with larger numbers is an id rather than a label."""
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_]*", re.ASCII)
_WORDS_OF_YAML = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", "none"})
_LABELS = ("label", "labels", "class", "target", "y", "category")
_VALIDATION = ("validation", "valid", "val", "dev", "test")


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is known of the data and of the cluster."""

    dataset: str
    data_format: str
    sample: Sample
    splits: Mapping[str, int]
    """Split → number of shards, by their names where these state it."""
    layout: Layout
    has_marker: bool
    """Whether the marker file of a complete version exists."""
    columns: Sequence[str]
    """Columns of Hive partitions."""
    counts: Mapping[str, int]
    """Split → number of records, where it is stated or can be estimated."""
    counted_by: str
    classes: Sequence[str] = ()
    """Names of the classes, from dataset.json."""
    class_names: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Feature → names of its classes, from the Parquet files."""
    cluster: str | None = None
    max_nodes: int = 1
    processes_per_node: int = 1


Ask = Callable[[str, Sequence[str]], str | None]
"""Takes a question and the answers to choose from; None without a terminal."""


@dataclass(kw_only=True)
class Proposal:
    """The pipeline file while it is written."""

    facts: Facts
    ask: Ask
    marks: list[str] = field(default_factory=list)
    """What a person has to check."""

    def text(self) -> str:
        """Return the file."""
        image, label = self._image(), self._label()
        lines = [
            f"# Written by `landfall init` from {self._looked_at()}.",
            f"# Look at what is marked {MARK[:-1]}, then: landfall check FILE. All fields: docs/pipelines.md",
            f"pipeline: {self.facts.dataset}",
            f"dataset: {self.facts.dataset}  # the first folder of an upload: {self.facts.dataset}/<version>/",
            "",
            "data:",
            f"  format: {self.facts.data_format}",
            f"  splits: [{', '.join(self.facts.splits)}]" + f"  # {self._shards()}",
            *self._layout(),
            "  features:",
            *(self._feature(name, seen, label) for name, seen in sorted(self.facts.sample.features.items())),
            "",
            "train:",
            *self._machines(),
            "  options:",
            *(f"    {line}" for line in self._options(image, label)),
            "",
            *self._registration(label),
        ]
        return "\n".join(lines) + "\n"

    def _mark(self, field: str, what: str) -> str:
        self.marks.append(f"{field}: {what}")
        return f"# {MARK} {what}"

    def _looked_at(self) -> str:
        sample = self.facts.sample
        return f"{counted(sample.num_records, 'record')} of {counted(sample.num_shards, 'shard')}"

    def _shards(self) -> str:
        return "shards: " + ", ".join(f"{split} {number:,}" for split, number in self.facts.splits.items())

    def _layout(self) -> Iterator[str]:
        """Yield the section of files that have any names."""
        layout = self.facts.layout
        if not layout.has_any_names:
            return
        yield "  layout:"
        what = f"the program that writes the data must write {layout.marker} last, as `landfall upload` does"
        there = {"manifest": layout.manifest, "delta": "the log of a Delta table"}.get(layout.kind, layout.marker)
        yield f"    kind: {layout.kind}  " + (
            f"# {there} is there" if self.facts.has_marker else self._mark("data.layout", what)
        )
        if layout.kind == "manifest":
            yield f"    manifest: {layout.manifest}"
        if layout.patterns:
            yield f"    patterns: {json.dumps(layout.patterns)}  # by the first word of each name"
        if layout.shares:
            yield f"    shares: {json.dumps(layout.shares)}  # no name shows a split: each file is drawn by its name"
            yield from self._draw_by()

    def _draw_by(self) -> Iterator[str]:
        """Yield the option that keeps all files with the same value of a column in one split."""
        columns = self.facts.columns
        if not columns:
            return
        column = self.ask("Which column must have all files of one value in the same split?", columns)
        if column:
            yield f"    draw_by: {column}"
        else:
            what = f"must all files of one {' or '.join(columns)} be in the same split?"
            yield f"    # draw_by: {columns[0]}  " + self._mark("data.layout.draw_by", what)

    # -- features -------------------------------------------------------------------------------------------
    def _image(self) -> str | None:
        names = [name for name, seen in self.facts.sample.features.items() if seen.is_image]
        return self._chosen("Which feature is the image?", sorted(names), ("image",))

    def _label(self) -> str | None:
        features = self.facts.sample.features
        numbers = {name: seen for name, seen in features.items() if seen.kind == "int64" and seen.lengths == {1}}
        names = [name for name, seen in numbers.items() if (seen.maximum or 0) < MAX_CLASSES]
        return self._chosen("Which feature is the label?", sorted(names), _LABELS)

    def _chosen(self, question: str, names: Sequence[str], usual: Sequence[str]) -> str | None:
        """Return the only name, the usual one, or the one that a person chooses; None if it is unknown."""
        if len(names) <= 1:
            return names[0] if names else None
        known = [name for wanted in usual for name in names if name.lower() == wanted]
        return known[0] if known else self.ask(question, names)

    def _feature(self, name: str, seen: Seen, label: str | None) -> str:
        members: dict[str, str] = {"kind": seen.kind}
        comment = ""
        if seen.kind == "bytes":
            more, comment = _bytes_members(seen)
            members.update(more)
        elif seen.lengths != {1}:
            members["shape"] = f"[{seen.lengths.copy().pop() if len(seen.lengths) == 1 else 'null'}]"
        if name == label:
            low, high, comment = self._range(name)
            members.update(minimum=str(low), maximum=str(high))
        elif seen.kind != "bytes" and seen.minimum is not None:
            comment = f"seen {seen.minimum:g} to {seen.maximum:g}"
        missing = self.facts.sample.num_records - seen.num_present
        if missing:
            members["required"] = "false"
            comment = f"{comment}{'; ' if comment else ''}{missing} of the records have none"
        listed = ", ".join(f"{key}: {value}" for key, value in members.items())
        if comment.startswith(MARK):
            self._mark(f"data.features.{name}", comment.removeprefix(MARK).strip())
        return f"    {_quoted(name)}: {{{listed}}}" + (f"  # {comment}" if comment else "")

    def _range(self, label: str) -> tuple[int, int, str]:
        """Return the range of the labels, and where it comes from."""
        seen = self.facts.sample.features[label]
        low, high = int(seen.minimum or 0), int(seen.maximum or 0)
        own = self.facts.class_names.get(label)
        if high < len(classes := own or self.facts.classes):
            names = ", ".join(map(_comment, classes[:MAX_SHOWN])) + (", …" if len(classes) > MAX_SHOWN else "")
            return 0, len(classes) - 1, f"from {'the files' if own else 'dataset.json'}: {names}"
        low = low if low <= 1 else 0  # the sample may have missed the first ones
        return low, high, f"{MARK} is this the whole range? Seen {seen.minimum} to {seen.maximum}"

    # -- training -------------------------------------------------------------------------------------------
    def _machines(self) -> Iterator[str]:
        facts = self.facts
        if facts.cluster is None:
            yield "  cluster: my-gpu  " + self._mark("train.cluster", "name a cluster of clusters.yaml")
        else:
            yield f"  cluster: {facts.cluster}  # described in clusters.yaml"
        yield f"  num_nodes: {self._num_nodes()}"
        yield "  timeout_s: 14400  # four hours for each attempt"

    def _num_nodes(self) -> int:
        train = self.facts.counts.get(self._train_split(), 0)
        return 2 if self.facts.max_nodes > 1 and train >= 2 * MIN_STEPS * self.facts.processes_per_node else 1

    def _train_split(self) -> str:
        return "train" if "train" in self.facts.splits else next(iter(self.facts.splits))

    def _validation_split(self) -> str | None:
        others = [split for split in self.facts.splits if split != self._train_split()]
        return next((split for wanted in _VALIDATION for split in others if split.lower() == wanted), None) or (
            others[0] if others else None
        )

    def _options(self, image: str | None, label: str | None) -> Iterator[str]:
        yield from self._feature_options(image, label)
        train, validation = self._train_split(), self._validation_split()
        if train != "train":
            yield f"train_split: {train}"
        if validation is None:
            what = "evaluated on the training data; better: landfall pack … --validation-share 0.1"
            yield f"validation_split: {train}  {self._mark('train.options.validation_split', what)}"
        elif validation != "validation":
            yield f"validation_split: {validation}"
        yield f"epochs: {EPOCHS}"
        yield f"per_process_batch_size: {self._batch_size()}  # {self._why_batch_size()}"
        yield "learning_rate: 0.001"
        yield "schedule: cosine"

    def _feature_options(self, image: str | None, label: str | None) -> Iterator[str]:
        if image is None:
            yield "model_module: scripts/model.py  " + self._mark(
                "train.options.model_module",
                "no feature holds images; write build_model(input_shape, num_classes) for your data",
            )
            yield "image_feature: image  " + self._mark("train.options.image_feature", "name the feature to train on")
        else:
            if image != "image":
                yield f"image_feature: {_quoted(image)}"
            yield from self._size_options(self.facts.sample.features[image])
        if label is None:
            what = "name the feature with the label, one int64 number"
            yield "label_feature: label  " + self._mark("train.options.label_feature", what)
            return
        if label != "label":
            yield f"label_feature: {_quoted(label)}"
        low, high, _ = self._range(label)
        if low:
            yield f"label_offset: {low}  # labels begin with {low}"
        yield f"num_classes: {max(2, high - low + 1)}  # labels {low} to {high}"

    def _size_options(self, seen: Seen) -> Iterator[str]:
        heights, widths, channels = ({size[axis] for size in seen.images} for axis in range(3))
        largest = max(*heights, *widths)
        side = min(MODEL_PIXELS, max(8, min(*heights, *widths)))
        is_small = largest <= SMALL_PIXELS
        yield f"model_name: {'small_cnn' if is_small else 'ResNet50'}  # images of up to {largest} pixels"
        if len(heights) > 1 or len(widths) > 1:
            side = side if is_small else MODEL_PIXELS
            yield f"image_height: {side}  # seen {min(heights)} to {max(heights)}; images are resized"
            yield f"image_width: {side}  # seen {min(widths)} to {max(widths)}"
        if len(channels) > 1 or not channels <= {1, 3}:
            yield f"image_channels: 3  # seen {', '.join(map(str, sorted(channels)))}; images are converted"

    def _batch_size(self) -> int:
        world_size = self._num_nodes() * self.facts.processes_per_node
        records, size = self.facts.counts.get(self._train_split(), 0), 1
        while size < MAX_BATCH and 2 * size * world_size * MIN_STEPS <= records:
            size *= 2
        return size

    def _why_batch_size(self) -> str:
        train = self._train_split()
        records = self.facts.counts.get(train)
        if records is None:
            what = "the number of records is not known"
            return self._mark("train.options.per_process_batch_size", what).removeprefix("# ")
        processes = counted(self._num_nodes() * self.facts.processes_per_node, "process", "processes")
        return f"{train} has {counted(records, 'record')} ({self.facts.counted_by}), shared by {processes}"

    def _registration(self, label: str | None) -> Iterator[str]:
        yield "register:"
        yield f"  model: {self.facts.dataset}"
        yield "  require:"
        if label is None:
            chance = 0.5
        else:
            low, high, _ = self._range(label)
            chance = 1 / max(2, high - low + 1)
        bound = round(chance + 0.2 * (1 - chance), 2)
        what = f"{bound} is a little better than chance, which is {chance:.2g}; what is good enough?"
        yield f"    - {{metric: val_accuracy, at_least: {bound}}}  " + self._mark("register.require", what)
        yield ""
        yield "# notify: [topic]   # recipients: docs/pipelines.md"


def _bytes_members(seen: Seen) -> tuple[dict[str, str], str]:
    """Return encoding and shape of a byte feature, and a comment."""
    if seen.is_image:
        encoding = "image" if len(seen.contents) > 1 else next(iter(seen.contents)).lower()
        axes = [{size[axis] for size in seen.images} for axis in range(3)]
        shape = ["null" if len(sizes) > 1 else str(next(iter(sizes))) for sizes in axes]
        comment = "as all that were seen" if len(seen.images) == 1 else f"{len(seen.images)} sizes were seen"
        return {"encoding": encoding, "shape": f"[{', '.join(shape)}]"}, comment
    if seen.contents == {"text"}:
        return {"encoding": "text"}, f"texts of up to {max(seen.sizes)} bytes"
    if len(seen.sizes) == 1:
        size = next(iter(seen.sizes))
        return (
            {"encoding": "raw", "dtype": "uint8", "shape": f"[{size}]"},
            f"{MARK} every value has {size} bytes; state the dtype and shape",
        )
    return {}, f"{MARK} bytes of unknown content"


def _quoted(name: str) -> str:
    """Return a name as YAML reads it back."""
    is_plain = _PLAIN.fullmatch(name) and name.lower() not in _WORDS_OF_YAML
    return name if is_plain else json.dumps(name)


def _comment(text: str) -> str:
    """Return a text that ends no comment, and nothing that a terminal obeys."""
    return json.dumps(text)[1:-1][:40]
