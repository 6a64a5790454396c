"""Mistakes that people make in pipeline files, each with the field that it is found at and the fix."""

from __future__ import annotations

from typing import NamedTuple

CLUSTERS = """\
gpu:
  sizes:
    - {vm_size: Standard_NC24ads_A100_v4, price_per_node_hour: 4}
  max_nodes: 4
old-gpu:
  sizes:
    - {vm_size: Standard_NC24rs_v3}
priced-v100:
  sizes:
    - {vm_size: Standard_ND40rs_v2, price_per_node_hour: 4}
"""
PIPELINE = """\
pipeline: cats
dataset: cats
data:
  format: tfrecord
  splits: [train, validation]
  features:
    image: {kind: bytes, encoding: png, shape: [64, 64, 3]}
    label: {kind: int64, minimum: 0, maximum: 9}
  drift: {action: warn}
train:
  cluster: gpu
  num_nodes: 2
  timeout_s: 3600
  options:
    model_name: ResNet50
    num_classes: 10
    epochs: 3
  overrides:
    epochs: {minimum: 1, maximum: 9}
attempts:
  max: 3
  max_cost: 100
register:
  model: cats
  require:
    - {metric: val_accuracy, at_least: 0.9}
notify:
  - topic
"""


class Mistake(NamedTuple):
    """One mistake: what is written instead of what, the field that a message must name, and words of the fix."""

    before: str
    after: str
    field: str
    words: str


MISTAKES = (
    # names of fields, and YAML itself
    Mistake("pipeline: cats", "pipline: cats", "pipline", "did you mean pipeline?"),
    Mistake("pipeline: cats\n", "", "pipeline", "is required"),
    Mistake("    epochs: 3", "    epoch: 3", "train.options.epoch", "did you mean epochs?"),
    Mistake("    epochs: 3", '    epochs: "3"', "train.options.epochs", "must be a valid integer"),
    Mistake("    epochs: 3", "    epochs: 1_0", "not valid YAML", "write a number without leading zeros"),
    Mistake("    epochs: 3", "\tepochs: 3", "not valid YAML", "line 17, column 1; indent with spaces"),
    Mistake("    epochs: 3", "    epochs: 3\n    epochs: 4", "not valid YAML", "'epochs' is repeated, line 18"),
    Mistake("  timeout_s: 3600", "  timeout_s: 1h", "train.timeout_s", "must be a valid integer"),
    Mistake("  cluster: gpu", "  compute: gpu", "train.compute", 'write "cluster: gpu" instead'),
    # the data
    Mistake("format: tfrecord", "format: tfrecords", "data.format", "must be 'tfrecord', 'parquet' or 'synthetic'"),
    Mistake("[train, validation]", "train", "data.splits", "must be a valid array"),
    Mistake("[train, validation]", "[train, train]", "data", "splits must not repeat a name"),
    Mistake(
        "[train, validation]",
        "[train]\n  layout: {kind: manifest, manifest: LIST}",
        "data.layout",
        "name it SHA256SUMS",
    ),
    Mistake("[train, validation]", "[train]\n  layout: {manifest: MD5SUMS}", "data.layout", "needs kind: manifest"),
    Mistake("  drift:", "  layout: delta\n  drift:", "data", "layout delta needs format: parquet"),
    Mistake("  drift:", "  layout: markers\n  drift:", "data.layout.kind", "must be 'names', 'marker'"),
    Mistake(
        "  drift:", "  layout: {kind: marker, markers: DONE}\n  drift:", "data.layout.markers", "did you mean marker"
    ),
    Mistake(
        "  drift:", "  layout: {kind: quiet, marker: DONE}\n  drift:", "data.layout", "marker needs kind: marker"
    ),
    Mistake(
        "  drift:", "  layout: {kind: marker, marker: a/b}\n  drift:", "data.layout.marker", "a file name of letters"
    ),
    Mistake(
        "  drift:", "  layout: {kind: marker, quiet_s: 600}\n  drift:", "data.layout", "quiet_s needs kind: quiet"
    ),
    Mistake(
        "  drift:",
        "  layout: {kind: quiet, quiet_s: 5}\n  drift:",
        "data.layout.quiet_s",
        "greater than or equal to 60",
    ),
    Mistake("  drift:", "  layout: {kind: manifest, manifest: readme.md}\n  drift:", "data.layout", "README.md"),
    Mistake(
        "  drift:", "  layout: {kind: manifest, manifest: sums.txt}\n  drift:", "data.layout", "name it SHA256SUMS"
    ),
    Mistake(
        "  drift:", "  layout: {patterns: {train: 't*'}}\n  drift:", "data.layout", "because names state the split"
    ),
    Mistake(
        "  drift:", "  layout: {kind: marker, draw_by: patient}\n  drift:", "data.layout", "draw_by needs shares"
    ),
    Mistake(
        "  drift:",
        "  layout: {kind: marker, shares: {train: 0.9, validation: 0.2}}\n  drift:",
        "data.layout",
        "shares must add up to 1, got 1.1",
    ),
    Mistake(
        "  drift:",
        "  layout: {kind: marker, shares: {train: 0.9, test: 0.1}}\n  drift:",
        "data",
        "layout.shares: test is not in splits",
    ),
    Mistake(
        "  drift:",
        "  layout: {kind: marker, patterns: {val: 'v*'}}\n  drift:",
        "data",
        "layout.patterns: val is not in",
    ),
    Mistake(
        "  drift:",
        "  layout: {kind: marker, patterns: {train: '*', validation: 'v*'}}\n  drift:",
        "data.layout",
        "patterns: '*' of train matches every file, so none is left for validation; write it last",
    ),
    Mistake("[train, validation]", "[]", "data", "name at least one, such as train"),
    Mistake("kind: int64", "kind: int", "data.features.label.kind", "must be 'int64', 'float' or 'bytes'"),
    Mistake("encoding: png", "encoding: gif", "data.features.image.encoding", "must be 'jpeg', 'png'"),
    Mistake("encoding: png", "encoding: raw", "data.features.image", "dtype is required with encoding raw"),
    Mistake(
        "minimum: 0, maximum: 9", "minimum: 9, maximum: 0", "data.features.label", "minimum 9 is above maximum 0"
    ),
    Mistake(
        "minimum: 0, maximum: 9", "allowed: [cat, dog]", "data.features.label.allowed", "is not a value of kind int64"
    ),
    Mistake("3]}", "3], maximum: 255}", "data.features.image.maximum", "bounds numbers, and the values are png"),
    Mistake("  drift:", "  label_feature: lable\n  drift:", "data", "'lable' is not one of the features"),
    Mistake("{action: warn}", "{max_label_distance: 10}", "data.drift.max_label_distance", "a number from 0 to 1"),
    # features, labels and splits against the options
    Mistake("    epochs: 3", "    image_feature: picture", "train.options.image_feature", "names image, label"),
    Mistake("    epochs: 3", "    image_feature: imgae", "train.options.image_feature", "did you mean image?"),
    Mistake("    epochs: 3", "    label_feature: class", "train.options.label_feature", "names image, label"),
    Mistake("    epochs: 3", "    image_feature: label", "train.options.image_feature", "is the label too"),
    Mistake("kind: int64", "kind: float", "train.options.label_feature", "a label is one int64 number"),
    Mistake("0, maximum: 9", "0, shape: [10]", "train.options.label_feature", "a label is one int64 number"),
    Mistake("num_classes: 10", "num_classes: 5", "train.options.num_classes", "5, but labels go up to 9"),
    Mistake("minimum: 0", "minimum: -1", "train.options.label_offset", "but labels go down to -1"),
    Mistake("    epochs: 3", "    label_offset: 1", "train.options.label_offset", "but labels go down to 0"),
    Mistake("[train, validation]", "[train, test]", "train.options.validation_split", "they have train, test"),
    Mistake("[train, validation]", "[training, validation]", "train.options.train_split", "did you mean training?"),
    Mistake(", encoding: png", "", "train.options.image_feature", "an image of bytes has encoding jpeg"),
    Mistake("encoding: png", "encoding: text", "train.options.image_feature", "an image of bytes has encoding jpeg"),
    Mistake("[64, 64, 3]", "[64, 64]", "train.options.image_feature", "is [HEIGHT, WIDTH, CHANNELS]"),
    Mistake("[64, 64, 3]", "[null, null, 3]", "train.options.image_height", "state image_height and image_width"),
    Mistake("[64, 64, 3]", "[64, 64, 2]", "train.options.image_channels", "set it to 1 or 3"),
    Mistake(
        "bytes, encoding: png, shape: [64, 64, 3]",
        "float, shape: [null, null, 3]",
        "train.options.image_feature",
        "state its sizes",
    ),
    # the model and its options
    Mistake("ResNet50", "Resnet-50", "train.options.model_name", "did you mean ResNet50?"),
    Mistake("ResNet50", "InceptionV3", "train.options.model_name", "at least 75 x 75 pixels"),
    Mistake("    epochs: 3", "    model_module: net.py", "train.options.model_module", "write scripts/<file>.py"),
    Mistake("    epochs: 3", "    pretrained_weights: w.pt", "train.options.pretrained_weights", ".weights.h5"),
    Mistake("    epochs: 3", "    pretrained_weights: w.keras", "train.options.pretrained_weights", "in train.files"),
    Mistake(
        "    epochs: 3",
        "    pretrained_weights: scripts/../w.keras",
        "train.options.pretrained_weights",
        "absolute path in the image",
    ),
    Mistake("    epochs: 3", "    monitor: val_auc", "train.options", "monitor val_auc needs task binary"),
    Mistake("    epochs: 3", "    task: binary", "train.options", "task binary needs num_classes 2"),
    Mistake(
        "    epochs: 3",
        '    pixel_mean: "1,2"\n    pixel_std: "1,2"',
        "train.options.pixel_mean",
        "one number for each of the 3 channels",
    ),
    Mistake(
        "    epochs: 3", '    pixel_mean: "1"\n    pixel_std: "0"', "train.options.pixel_std", "cannot be divided"
    ),
    # ranks, clusters, precision
    Mistake("    epochs: 3", "    num_lanes: 3", "train.options.num_lanes", "use a multiple of 2"),
    Mistake("    epochs: 3", "    num_lanes: 128", "train.options.num_lanes", "use a divisor, or 0"),
    Mistake("cluster: gpu", "cluster: gpuu", "train.cluster", "did you mean gpu?"),
    Mistake("num_nodes: 2", "num_nodes: 8", "train.cluster", "raise its max_nodes in clusters.yaml"),
    Mistake(
        "    epochs: 3", "    mixed_precision: fp16", "train.options.mixed_precision", "must be 'none', 'float16'"
    ),
    Mistake(
        "cluster: gpu\n  num_nodes: 2\n  timeout_s: 3600\n  options:",
        "cluster: priced-v100\n  num_nodes: 2\n  timeout_s: 3600\n  options:\n    mixed_precision: bfloat16",
        "train.options.mixed_precision",
        "write float16",
    ),
    # attempts, money, overrides, registration, people
    Mistake("cluster: gpu", "cluster: old-gpu", "train.cluster", "needs price_per_node_hour"),
    Mistake("max_cost: 100", "max_cost: 1", "train.cluster", "attempts.max_cost must be at least 8"),
    Mistake("max_cost: 100", "max_node_hours: 1", "the file", "attempts.max_node_hours must be at least 2"),
    Mistake("  max: 3", "  remedies: {oom: resume}", "attempts.remedies.oom", "must be 'preempted', 'no_capacity'"),
    Mistake("  max: 3", "  remedies: {canceled: resume}", "attempts", "must not start another attempt"),
    Mistake(
        "  max: 3",
        "  remedies: {no_capacity: other_size}",
        "attempts.remedies.no_capacity",
        "a cluster in attempts.other_clusters",
    ),
    Mistake("  max: 3", "  max: 1\n  remedies: {timeout: resume}", "attempts.remedies.timeout", "raise it"),
    Mistake("  max: 3", "  other_clusters: [gpu]", "attempts.other_clusters.0", "is the pipeline's own cluster"),
    Mistake("    epochs: {", "    epoch: {", "train.overrides.epoch", "must be an option"),
    Mistake(
        "    epochs: {minimum: 1, maximum: 9}",
        "    optimizer: {allowed: [adam, sdg]}",
        "train.overrides.optimizer.allowed",
        "did you mean sgd?",
    ),
    Mistake(
        "    epochs: {minimum: 1, maximum: 9}",
        "    model_name: {allowed: [VGG61]}",
        "train.overrides.model_name.allowed",
        "did you mean VGG1",
    ),
    Mistake("val_accuracy", "accuracy_val", "register.require.0", "it reports loss, accuracy"),
    Mistake("val_accuracy", "val_acuracy", "register.require.0", "did you mean val_accuracy?"),
    Mistake("val_accuracy", "val_auc", "register.require.0", "val_auc needs task: binary"),
    Mistake("at_least: 0.9", "at_least: 90", "register.require.0", "90 percent is 0.9"),
    Mistake(
        "at_least: 0.9", "at_least: 0.9, at_most: 0.5", "register.require.0", "at_least 0.9 is above at_most 0.5"
    ),
    Mistake("  - topic", "  - mail", "notify.0", "must be topic, or webhook:"),
)
