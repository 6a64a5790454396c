"""Renamed library functions are checked like the originals."""

from __future__ import annotations

import ast

import pytest

from horovod_lint.names import restore_names
from tests.unit.horovod_lint.scripts import FIT, TAPE, TORCH, found, spoilt


@pytest.mark.parametrize(
    ("named", "call"),
    [
        ("made = {function}", "made({arguments})"),
        ("import functools; made = functools.partial({function})", "made({arguments})"),
        ("import functools as ft; made = ft.partial({function}, {arguments})", "made()"),
        ("from functools import partial as p; made = p({function})", "made({arguments})"),
        ("from functools import partial as p", "p({function}, {arguments})()"),
        ("import functools; q = functools.partial", "q({function})({arguments})"),
        ("from functools import partial; a = partial({function}); made = partial(a)", "made({arguments})"),
    ],
)
@pytest.mark.parametrize(
    ("script", "function", "arguments"),
    [
        (FIT, "hvd.DistributedOptimizer", "optimizer"),
        (TORCH, "hvd.DistributedOptimizer", "optimizer, named_parameters=model.named_parameters()"),
        (FIT, "hvd.callbacks.MetricAverageCallback", ""),
        (TAPE, "hvd.allreduce", "loss"),
    ],
)
def test_a_function_under_another_name(script: str, function: str, arguments: str, named: str, call: str) -> None:
    """The name comes from an assignment or from functools.partial, which may be renamed itself."""
    parts = {"function": function, "arguments": arguments}
    changes = [
        ("hvd.init()\n", f"hvd.init(); {named.format(**parts)}\n"),
        (f"{function}({arguments})", call.format(**parts)),
    ]
    assert found(script) == found(spoilt(script, *changes))


@pytest.mark.parametrize("named", ["if training:\n    made = {}\nelse:\n    made = print", "made = {{1: {}}}[1]"])
@pytest.mark.parametrize("call", ["hvd.DistributedOptimizer(optimizer)", "hvd.callbacks.MetricAverageCallback()"])
def test_a_name_that_may_be_a_horovod_function(named: str, call: str) -> None:
    """One of several values, or read from a container: it is assumed correct."""
    function, arguments = call.rstrip(")").split("(")
    changes = [("hvd.init()\n", f"hvd.init()\n{named.format(function)}\n"), (call, f"made({arguments})")]
    assert [] == found(spoilt(FIT, *changes))


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ("sgd = partial({SGD}, 0.01)\noptimizer = sgd()", ["learning_rate_not_scaled"]),
        ("sgd = partial({SGD}, 0.01 * hvd.size())\noptimizer = sgd()", []),
        ("sgd = partial({SGD}, learning_rate=0.01)\noptimizer = sgd(learning_rate=0.01 * hvd.size())", []),
        # assigned twice: the function is not known, so there is no finding
        ("sgd = partial({SGD}, 0.01)\nif more:\n    sgd = partial({SGD}, 0.02)\noptimizer = sgd()", []),
    ],
)
def test_arguments_fixed_by_partial(named: str, expected: list[str]) -> None:
    """They count unless the call passes them again; the learning rate shows which one counts."""
    named = named.format(SGD="tf.keras.optimizers.SGD")
    line = "optimizer = tf.keras.optimizers.SGD(0.01 * hvd.size())"
    assert expected == found(spoilt(FIT, (line, f"from functools import partial\n{named}")))


def test_nested_partials_are_restored_up_to_a_limit() -> None:
    """Each name contains the previous one three times; without a limit the tree would explode."""
    names = "".join(f"f{i + 1} = partial(f{i}, f{i}, f{i})\n" for i in range(12))
    tree = ast.parse(f"from functools import partial\nf0 = partial(print, 1)\n{names}f12()\n")
    restore_names(tree)
    assert 100_000 > len(list(ast.walk(tree)))
