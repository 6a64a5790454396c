"""Finding the link behind measured efficiencies."""

from __future__ import annotations

import pytest

from shared.scaling_fit import Measured, fitted, held_out_errors
from shared.scaling_model import Link, Workload, scaling_efficiency

SHARED_MEMORY = Link(bytes_per_s=2e9, latency_s=5e-3, overlap=0.0)
WORKLOADS = {
    "ResNet-50": Workload(compute_s=0.50, gradient_bytes=102e6),
    "ResNet-101": Workload(compute_s=0.90, gradient_bytes=178e6),
    "VGG-16": Workload(compute_s=0.80, gradient_bytes=260e6),
    "Inception V3": Workload(compute_s=0.40, gradient_bytes=95e6),
    "MobileNet V2": Workload(compute_s=0.15, gradient_bytes=14e6),
}


def measured_on(link: Link) -> list[Measured]:
    return [
        Measured(name=name, workload=w, num_ranks=2, efficiency=scaling_efficiency(w, link, 2))
        for name, w in WORKLOADS.items()
    ]


@pytest.mark.parametrize("overlap", [0.0, 0.1], ids=["the cores carry it", "some of it hides"])
def test_a_link_is_found_again_from_what_it_did(overlap: float) -> None:
    """Rate within a tenth, and every efficiency within a thousandth."""
    link = Link(bytes_per_s=2e9, latency_s=5e-3, overlap=overlap)
    found = fitted(measured_on(link))
    again = [scaling_efficiency(w, found, 2) for w in WORKLOADS.values()]
    assert pytest.approx([m.efficiency for m in measured_on(link)], abs=1e-3) == again
    assert pytest.approx(link.bytes_per_s, rel=0.1) == found.bytes_per_s


def test_one_more_model_is_foretold_from_the_others() -> None:
    """What obeys the cost model is foretold to half a point."""
    assert pytest.approx(dict.fromkeys(WORKLOADS, 0.0), abs=5e-3) == held_out_errors(measured_on(SHARED_MEMORY))


def test_what_does_not_obey_the_model_is_not_foretold() -> None:
    """A model that scales at half of what its gradients allow is off by that much."""
    odd = Measured(name="odd", workload=WORKLOADS["ResNet-50"], num_ranks=2, efficiency=0.45)
    assert pytest.approx(0.45, abs=0.05) == held_out_errors([*measured_on(SHARED_MEMORY), odd])["odd"]


def test_one_training_does_not_tell_rate_from_latency() -> None:
    """Two are the least."""
    with pytest.raises(ValueError, match="measured should be at least 2, were 1"):
        fitted(measured_on(SHARED_MEMORY)[:1])
