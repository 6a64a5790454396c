"""The cost model: time per record from published figures, for pipelines that have not run yet.

The throughput of ResNet-50 on the GPU is divided by the network's operations relative to ResNet-50's, and multiplied
by shares of a linear speed-up for the GPUs of a node and for the nodes. docs/plan.md has the formula.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from function_app.config.prices import Prices
from shared.job_arguments import TrainingOptions
from shared.vm_sizes import vm_size

REFERENCE = "ResNet50"
REFERENCE_PIXELS = 224
MAX_SPEED_UP = 5.0
"""Maximum rate of small networks as a multiple of ResNet-50's, because loading then takes the time. Assumed."""
GPUS_OF_NODE, SERVERS = 8, 128
"""The configuration with which the shares of `prices.Scaling` were measured."""
VGG_SHARE, VGG_RDMA = 0.68, 1.30
"""VGG-16 on 128 servers, and its gain from RDMA: Sergeev & Del Balso 2018 (arXiv 1802.05799), section 5."""

_AT = {299: ("InceptionV3", "InceptionResNetV2", "Xception"), 331: ("NASNetLarge",)}
_AT |= {240: ("EfficientNetB1",), 260: ("EfficientNetB2",), 300: ("EfficientNetB3",), 380: ("EfficientNetB4",)}
_AT |= {456: ("EfficientNetB5",), 528: ("EfficientNetB6",), 600: ("EfficientNetB7",)}
_AT |= {384: ("EfficientNetV2S",), 480: ("EfficientNetV2M", "EfficientNetV2L")}
_PIXELS: Mapping[str, int] = {name: pixels for pixels, names in _AT.items() for name in names}
OPERATIONS: Mapping[str, float] = {
    # He et al. 2015 (arXiv 1512.03385), table 1 and section 3.3
    "ResNet50": 3.8,
    "ResNet101": 7.6,
    "ResNet152": 11.3,
    "VGG19": 19.6,
    "VGG16": 15.3,
    "ResNet50V2": 3.8,
    "ResNet101V2": 7.6,
    "ResNet152V2": 11.3,
    # Howard et al. 2017 (1704.04861), Sandler et al. 2018 (1801.04381), Howard et al. 2019 (1905.02244)
    "MobileNet": 0.57,
    "MobileNetV2": 0.30,
    "MobileNetV3Large": 0.22,
    "MobileNetV3Small": 0.06,
    # Tan & Le 2019 (1905.11946), table 2
    "EfficientNetB0": 0.39,
    "EfficientNetB1": 0.70,
    "EfficientNetB2": 1.0,
    "EfficientNetB3": 1.8,
    "EfficientNetB4": 4.2,
    "EfficientNetB5": 9.9,
    "EfficientNetB6": 19.0,
    "EfficientNetB7": 37.0,
    "InceptionV3": 5.7,
    "Xception": 8.4,
    "InceptionResNetV2": 13.0,
    "DenseNet169": 3.5,
    "NASNetLarge": 24.0,
    # Tan & Le 2021 (2104.00298), table 7; Liu et al. 2022 (2201.03545), table 1; Zoph et al. 2018 (1707.07012)
    "EfficientNetV2S": 8.8,
    "EfficientNetV2M": 24.0,
    "EfficientNetV2L": 53.0,
    "NASNetMobile": 0.56,
    "ConvNeXtTiny": 4.5,
    "ConvNeXtSmall": 8.7,
    "ConvNeXtBase": 15.4,
    "ConvNeXtLarge": 34.4,
    "ConvNeXtXLarge": 60.9,
}
"""Network → billions of multiply-adds for one image, at the paper's image size."""
_BY_LOWER_CASE = {name.lower(): name for name in OPERATIONS}
SMALL = frozenset({"small_cnn"})


@dataclass(frozen=True, kw_only=True)
class Place:
    """The place of the processes: VM size, nodes, and number of all processes."""

    vm_size: str
    num_nodes: int
    num_ranks: int


@dataclass(frozen=True, kw_only=True)
class CostModel:
    """Published figures for one training."""

    prices: Prices
    options: TrainingOptions
    pixels: int
    """Height times width of the network's input image; 0 if unknown."""

    @property
    def is_of_reference(self) -> bool:
        """Whether the figures were measured on this network."""
        return self.options.model_name.lower().startswith(REFERENCE.lower())

    def record_s(self, place: Place) -> float | None:
        """Return the seconds per record with all processes; None without a figure for the GPU or the network."""
        rate, known = self._rate(place.vm_size), vm_size(place.vm_size)
        if rate is None or known is None:
            return None
        return 1 / (place.num_ranks * rate * self._share(place, infiniband=known.infiniband))

    def _rate(self, size: str) -> float | None:
        """Return the images per second of one GPU."""
        known = vm_size(size)
        figures = self.prices.gpus.get(known.gpu) if known else None
        work = self._work()
        if figures is None or work is None:
            return None
        published = figures.float32 if self.options.mixed_precision == "none" else figures.mixed
        return published / max(work, 1 / MAX_SPEED_UP)

    def _work(self) -> float | None:
        """Return an image's operations as a multiple of ResNet-50's at 224 x 224; None for unknown networks."""
        options = self.options
        if options.model_module:
            return None
        if options.model_name in SMALL:
            return 0.0
        name = _BY_LOWER_CASE.get(options.model_name.lower())
        if name is None:
            return None
        own = _PIXELS.get(name, REFERENCE_PIXELS) ** 2
        return OPERATIONS[name] / OPERATIONS[REFERENCE] * (self.pixels or own) / own

    def _share(self, place: Place, *, infiniband: bool) -> float:
        """Return the share of a linear speed-up."""
        scaling, is_vgg = self.prices.scaling, self.options.model_name.lower().startswith("vgg")
        of_node = max(1.0, place.num_ranks / place.num_nodes)
        share: float = math.pow(scaling.eight_gpus, math.log2(of_node) / math.log2(GPUS_OF_NODE))
        if place.num_nodes == 1:
            return share
        far = VGG_SHARE if is_vgg else scaling.servers_128
        share *= math.pow(far, math.log2(place.num_nodes) / math.log2(SERVERS))
        return share if infiniband else share * (1 / VGG_RDMA if is_vgg else scaling.without_rdma)
