"""Epochs, steps and the learning rate, which depend on the number of ranks."""

from __future__ import annotations

import pytest

from tests.unit.horovod_lint.scripts import FIT, TAPE, TORCH, found, spoilt

STEPS = "steps_per_epoch=50000 // 32 // hvd.size(), "


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ("steps_per_epoch=50000 // batch_size", ["steps_not_divided"]),
        ("steps_per_epoch=len(x_val) // batch_size", ["steps_not_divided"]),
        ("steps_per_epoch=50000 // (batch_size * hvd.size())", []),
        ("steps_per_epoch=len(x) // batch_size", []),
        ("steps_per_epoch=100", []),
        ("steps_per_epoch=int(os.environ['STEPS'])", []),
    ],
)
def test_steps_of_all_data_on_every_rank(steps: str, expected: list[str]) -> None:
    """A warning if they are computed from all data; a plain number may be meant for one rank."""
    script = spoilt(FIT, (STEPS, f"{steps}, "), ("hvd.init()\n", "hvd.init()\nbatch_size = 32\n"))
    assert expected == found(script)


@pytest.mark.parametrize(
    "epochs",
    [
        ("epochs=10", "epochs=10 // hvd.size()"),
        ("epochs=10", "epochs=int(math.ceil(10.0 / hvd.size()))"),
        ("epochs=10", "epochs=epochs"),
        ("epochs=10", "epochs=share(10)"),
    ],
)
def test_epochs_divided_by_the_number_of_ranks_are_found(epochs: tuple[str, str]) -> None:
    """Directly, rounded, through a name, in a function."""
    named = "def share(n):\n    return max(1, n // hvd.size())\nepochs = 10 // hvd.size()\n"
    before = named if epochs[1] == "epochs=epochs" else named.replace("epochs = 10 // hvd.size()\n", "")
    script = spoilt(FIT, epochs, ("hvd.init()\n", f"import math\nhvd.init()\n{before}"))
    assert ["epochs_divided"] == found(script)


def test_epochs_of_a_loop_and_divided_in_place_are_found() -> None:
    """Steps and warm-up epochs may be divided."""
    assert ["epochs_divided"] == found(spoilt(TAPE, ("range(args.epochs)", "range(args.epochs // hvd.size())")))
    divided = "hvd.init()\n    args.epochs //= hvd.size()\n"
    assert ["epochs_divided"] == found(spoilt(TAPE, ("hvd.init()\n", divided)))
    assert [] == found(spoilt(FIT, ("hvd.init()\n", "hvd.init()\nwarmup_epochs = 5 / hvd.size()\n")))


@pytest.mark.parametrize("rate", ["0.01", "args.rate", "learning_rate=0.01"])
def test_a_rate_that_is_the_same_for_any_number_of_ranks_is_advice(rate: str) -> None:
    """A scaled or scheduled rate has no finding."""
    assert ["learning_rate_not_scaled"] == found(spoilt(TAPE, ("SGD(0.01 * hvd.size())", f"SGD({rate})")))
    scheduled = spoilt(
        TAPE, ("SGD(0.01 * hvd.size())", "SGD(tf.keras.optimizers.schedules.CosineDecay(0.1 * hvd.size(), 100))")
    )
    assert [] == found(scheduled)


@pytest.mark.parametrize(
    ("optimizer", "codes"),
    [
        ("torch.optim.Adam(model.parameters())", ["framework_partly_checked"]),
        ("torch.optim.Adam(model.parameters(), lr=0.01)", ["framework_partly_checked", "learning_rate_not_scaled"]),
    ],
)
def test_a_number_of_a_scheduler_is_not_taken_for_a_rate(optimizer: str, codes: list[str]) -> None:
    """The number of epochs of PyTorch's StepLR is where its optimizers take the rate."""
    script = spoilt(TORCH, ("torch.optim.SGD(model.parameters(), lr=0.01 * hvd.size())", optimizer))
    assert codes == found(f"{script}scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 30)\n")
