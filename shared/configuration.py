"""Check that the options of Landfall's training fit the data and each other, before a job is submitted.

`mistakes` checks the pipeline file alone, `misfits` also compares it with the manifest. The submitter refuses options
that do not fit. The training checks again, because it may be started by hand.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from shared.job_arguments import TrainingOptions, numbers
from shared.manifest import FeatureSpec, Manifest

MAX_NAMED = 20
_AXES = 3
"""Height, width, channels."""
_CHANNELS = {"jpeg": (1, 3), "image": (1, 3), "png": (1, 3, 4)}
"""Encoding → number of channels in TensorFlow's decoded image."""
SMALL_CNN = "small_cnn"
MODELS: Mapping[str, int] = {
    SMALL_CNN: 2,
    **dict.fromkeys((f"ConvNeXt{size}" for size in ("Tiny", "Small", "Base", "Large", "XLarge")), 32),
    **dict.fromkeys((f"DenseNet{depth}" for depth in (121, 169, 201)), 29),
    **dict.fromkeys((f"EfficientNetB{number}" for number in range(8)), 1),
    **dict.fromkeys((f"EfficientNetV2{size}" for size in ("B0", "B1", "B2", "B3", "S", "M", "L")), 1),
    "InceptionResNetV2": 75,
    "InceptionV3": 75,
    "Xception": 7,
    "MobileNet": 31,
    "MobileNetV2": 1,
    "MobileNetV3Large": 32,
    "MobileNetV3Small": 32,
    "NASNetLarge": 3,
    "NASNetMobile": 3,
    **dict.fromkeys((f"ResNet{depth}{version}" for depth in (50, 101, 152) for version in ("", "V2")), 1),
    "VGG16": 32,
    "VGG19": 32,
}
"""Model → height and width of the smallest image for which it can be built."""
_OF_COLOURS = ("ConvNeXt", "EfficientNetV2B")
"""Prefixes of the names of models whose first layer normalises three channels."""
_BY_LOWER_CASE = {name.lower(): name for name in MODELS}


def misfits(options: TrainingOptions, manifest: Manifest, *, world_size: int) -> list[str]:
    """Return the reasons why the training cannot use the data; each text begins with the option to change."""
    splits = sorted({shard.split for shard in manifest.shards})
    stated = mistakes(options, features=manifest.features, splits=splits, world_size=world_size)
    counted = [
        *_of_counts(options, manifest, splits, world_size),
        *_of_presence(options, manifest),
        *_of_labels(options, manifest),
    ]
    known = {text.partition(":")[0] for text in stated}
    return [*stated, *(text for text in counted if text.partition(":")[0] not in known)]


def mistakes(
    options: TrainingOptions,
    *,
    features: Sequence[FeatureSpec],
    splits: Sequence[str],
    world_size: int | None = None,
) -> list[str]:
    """Return the problems that the pipeline file alone shows; each text begins with the option to change.

    ``world_size`` is None if the machines are unknown. Synthetic data have neither features nor splits.
    """
    found = [*_of_model(options), *_of_lanes(options, world_size)]
    if options.synthetic_records:
        shape = (options.image_height, options.image_width, options.image_channels)
        return [*found, *_of_shape(options, shape)]
    return [*_of_splits(options, splits), *_of_features(options, features), *found, *_of_image(options, features)]


def unreported_metrics(options: TrainingOptions, metrics: Sequence[str]) -> list[str]:
    """Return the metrics that a pipeline requires but the training does not report."""
    own = options.reported_metrics
    reported = (*own, *(f"val_{name}" for name in own))
    return [
        f"register.require.{number}: the training reports no {metric}; it reports {', '.join(reported)}"
        f"{_why_unreported(metric, reported)}"
        for number, metric in enumerate(metrics)
        if metric not in reported
    ]


def _why_unreported(metric: str, reported: Sequence[str]) -> str:
    needs = {"auc": "task: binary", "top5_accuracy": "more than 5 classes"}.get(metric.removeprefix("val_"))
    return f"; {metric} needs {needs}" if needs else suggestion(metric, reported)


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: a similar known name, or empty if there is none."""
    by_lower_case = {one.lower(): one for one in known}
    close = difflib.get_close_matches(name.lower(), by_lower_case, n=1)
    return f"; did you mean {by_lower_case[close[0]]}?" if close else ""


def _of_splits(options: TrainingOptions, splits: Sequence[str]) -> Iterator[str]:
    for option in ("train_split", "validation_split"):
        name = getattr(options, option)
        if name not in splits:
            known = f"they have {named(list(splits))}{suggestion(name, splits)}"
            yield f"{option}: the data have no split {_quoted(name)}; {known}"


def _of_counts(options: TrainingOptions, manifest: Manifest, splits: Sequence[str], world_size: int) -> Iterator[str]:
    times = f", accumulated {options.gradient_accumulation} times," if options.gradient_accumulation > 1 else ""
    step = world_size * options.per_process_batch_size * options.gradient_accumulation
    num_records = manifest.num_records(options.train_split)
    if options.train_split in splits and num_records < step:
        yield (
            f"per_process_batch_size: {options.per_process_batch_size} on {world_size} processes"
            f"{times} needs {step} records for each step, but split {options.train_split} has {num_records}"
        )
    if options.validation_split in splits and not manifest.num_records(options.validation_split):
        yield f"validation_split: split {options.validation_split} has no records to evaluate on"


def _of_lanes(options: TrainingOptions, world_size: int | None) -> Iterator[str]:
    """Yield the reasons why an epoch cannot be divided equally; see training_job/rank_plan.py."""
    lanes = options.num_lanes
    if world_size is None or not lanes:
        return
    step = world_size * options.per_process_batch_size * options.gradient_accumulation
    if lanes % world_size:
        yield (
            f"num_lanes: {lanes} lanes cannot be shared equally by {world_size} processes; "
            f"use a multiple of {world_size}, or 0"
        )
    elif step % lanes:
        yield f"num_lanes: {lanes} lanes cannot share the {step} records of a step equally; use a divisor, or 0"


def _of_model(options: TrainingOptions) -> Iterator[str]:
    name = options.model_name
    if not options.model_module and name.lower() not in _BY_LOWER_CASE:
        hint = suggestion(name, MODELS) or f"; there are {', '.join(MODELS)}"
        yield f"model_name: there is no model {_quoted(name)}{hint}"
    weights = options.pretrained_weights
    if weights and not weights.endswith((".keras", ".h5")):
        yield f"pretrained_weights: {_quoted(weights)} is not a weights file; these end in .keras or .weights.h5"
    if any(not number for number in numbers(options.pixel_std)):
        yield "pixel_std: has a 0, by which pixels cannot be divided"


def _of_features(options: TrainingOptions, features: Sequence[FeatureSpec]) -> Iterator[str]:
    names = sorted(one.name for one in features)
    for option in ("image_feature", "label_feature"):
        name = getattr(options, option)
        if name not in names:
            known = f"data.features names {named(names)}{suggestion(name, names)}"
            yield f"{option}: the data has no feature {_quoted(name)}; {known}"
    label = _feature(features, options.label_feature)
    if label is None:
        return
    if (label.kind, label.shape) != ("int64", ()):
        yield f"label_feature: {_quoted(label.name)} is not a label; a label is one int64 number"
    elif options.image_feature == options.label_feature:
        yield f"image_feature: {_quoted(label.name)} is the label too; name the feature that holds the image"
    else:
        allowed = [one for one in label.allowed if isinstance(one, int | float)]
        lows = [one for one in (label.minimum, min(allowed, default=None)) if one is not None]
        highs = [one for one in (label.maximum, max(allowed, default=None)) if one is not None]
        lowest, highest = max(lows, default=options.label_offset), min(highs, default=options.label_offset)
        yield from (text for _, text in label_misfits(options, lowest, highest))


def _of_image(options: TrainingOptions, features: Sequence[FeatureSpec]) -> Iterator[str]:
    """Yield the reasons why the images cannot be decoded, or the model cannot be built for them."""
    spec = _feature(features, options.image_feature)
    if spec is None or options.image_feature == options.label_feature:
        return
    name = _quoted(spec.name)
    if spec.kind == "bytes" and spec.encoding not in (*_CHANNELS, "raw"):
        yield (
            f"image_feature: {name} has {f'encoding {spec.encoding}' if spec.encoding else 'no encoding'}; "
            f"an image of bytes has encoding {', '.join(_CHANNELS)} or raw in data.features"
        )
        return
    problem = _numbers_problem(spec) if spec.encoding not in _CHANNELS else _encoded_problem(spec)
    if problem:
        yield f"image_feature: {name} {problem}"
        return
    stored = spec.shape or (None,) * _AXES
    wanted = (options.image_height, options.image_width, options.image_channels)
    if len(stored) != _AXES:
        if any(wanted):
            yield f"image_height: {name} is no image that can be resized: its shape is {_shape(stored)}"
        elif not options.model_module:
            yield f"image_feature: {name} has shape {_shape(stored)}; {_needs_image(options)}"
        return
    shape = tuple(one or size or 0 for one, size in zip(wanted, stored, strict=True))
    if spec.encoding not in _CHANNELS and shape[-1] != (stored[-1] or shape[-1]):
        yield f"image_channels: {shape[-1]}, but {name} has {stored[-1]} channels, which are not converted"
    elif spec.encoding in _CHANNELS and shape[-1] and shape[-1] not in _CHANNELS[spec.encoding]:
        choices = " or ".join(map(str, _CHANNELS[spec.encoding]))
        yield f"image_channels: {name} cannot be decoded to {shape[-1]} channels; set it to {choices}"
    else:
        yield from _of_shape(options, shape, name)


def _numbers_problem(spec: FeatureSpec) -> str | None:
    """Return why the arrays do not have one known shape; None if they do."""
    if not spec.shape:
        return "has no shape; write shape: [HEIGHT, WIDTH, CHANNELS] in data.features"
    if sum(size is None for size in spec.shape) > (1 if len(spec.shape) == _AXES else 0):
        return f"has shape {_shape(spec.shape)}, and numbers do not say how they are divided; state its sizes"
    return None


def _encoded_problem(spec: FeatureSpec) -> str | None:
    if spec.shape and len(spec.shape) != _AXES:
        return f"has shape {_shape(spec.shape)}; the shape of an image is [HEIGHT, WIDTH, CHANNELS]"
    return None


def _of_shape(options: TrainingOptions, shape: tuple[int, ...], name: str = "the image") -> Iterator[str]:
    """Yield the reasons why the model cannot be built for images of a shape, in which 0 is an unknown size."""
    names = ("image_height", "image_width", "image_channels")
    if missing := [option for option, size in zip(names, shape, strict=True) if not size]:
        yield f"{missing[0]}: state {' and '.join(missing)}, because data.features gives {name} an incomplete shape"
        return
    if len(numbers(options.pixel_mean)) not in (0, 1, shape[-1]) or len(numbers(options.pixel_std)) not in (
        *(0, 1),
        shape[-1],
    ):
        yield f"pixel_mean: pixel_mean and pixel_std need one number for each of the {shape[-1]} channels"
    model = _BY_LOWER_CASE.get(options.model_name.lower())
    if options.model_module or model is None:
        return
    if min(shape[:2]) < MODELS[model]:
        size = MODELS[model]
        yield (
            f"model_name: {model} needs images of at least {size} x {size} pixels, and they have "
            f"{shape[0]} x {shape[1]}; set image_height and image_width, or use another model"
        )
    elif model.startswith(_OF_COLOURS) and shape[-1] != _AXES and not options.pixel_mean:
        yield f"model_name: {model} needs images of 3 channels, and they have {shape[-1]}; set image_channels to 3"


def _needs_image(options: TrainingOptions) -> str:
    return f"{options.model_name} needs [HEIGHT, WIDTH, CHANNELS], other shapes a model_module"


def _shape(shape: Sequence[int | None]) -> str:
    return f"[{', '.join('null' if size is None else str(size) for size in shape)}]"


def _of_presence(options: TrainingOptions, manifest: Manifest) -> Iterator[str]:
    for option in ("image_feature", "label_feature"):
        name = getattr(options, option)
        for split, statistics in _read_splits(options, manifest):
            total, present = statistics.get("num_records", 0), _seen(statistics, name).get("num_present")
            if present is not None and present < total:
                yield f"{option}: {total - present} of {total} records of split {split} have no {_quoted(name)}"


def _of_labels(options: TrainingOptions, manifest: Manifest) -> Iterator[str]:
    spec = _feature(manifest.features, options.label_feature)
    if spec is None or spec.kind != "int64":
        return
    seen = [_seen(statistics, spec.name) for _, statistics in _read_splits(options, manifest)]
    lows = [one["minimum"] for one in seen if one.get("minimum") is not None]
    highs = [one["maximum"] for one in seen if one.get("maximum") is not None]
    if lows and highs:
        yield from (text for _, text in label_misfits(options, min(lows), max(highs)))


def label_misfits(options: TrainingOptions, lowest: float, highest: float) -> Iterator[tuple[str, str]]:
    """Yield each option that does not allow the labels, and a text that begins with the option."""
    if lowest < options.label_offset:
        yield "label_offset", f"label_offset: {options.label_offset}, but labels go down to {lowest:g}"
    offset = f" with label_offset: {options.label_offset}" if options.label_offset else ""
    if highest - options.label_offset >= options.num_classes:
        yield "num_classes", f"num_classes: {options.num_classes}{offset}, but labels go up to {highest:g}"


def _read_splits(options: TrainingOptions, manifest: Manifest) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the statistics of the splits that the training reads, except those that were too large to keep."""
    splits: Mapping[str, Any] = manifest.statistics.get("splits", {})
    for split in dict.fromkeys((options.train_split, options.validation_split)):
        if split in splits:
            yield split, splits[split]


def _seen(statistics: Mapping[str, Any], feature: str) -> Mapping[str, Any]:
    seen: Mapping[str, Any] = statistics.get("features", {}).get(feature, {})
    return seen


def _feature(features: Sequence[FeatureSpec], name: str) -> FeatureSpec | None:
    return next((spec for spec in features if spec.name == name), None)


def _quoted(name: str) -> str:
    return f'"{name[:100]}"'


def named(names: list[str]) -> str:
    """Return a list of names as text, bounded in number and length."""
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return (", ".join(name[:100] for name in names[:MAX_NAMED]) or "none") + more
