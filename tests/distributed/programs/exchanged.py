"""No training: ranks that exchange, through a node's memory, whatever gradients may be, and note the results.

NOTES_FOLDER/exchanged-<rank>.json has them. WITHOUT_LIBRARY names a rank that does not find the native library.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from shared.training_options import TrainingOptions
from training_job import collective, process_environment
from training_job.exchange import node_exchange

NOTES = Path(os.environ["NOTES_FOLDER"])
LONG = 150_001
"""Floats: three pieces, the last of them short."""


def main() -> None:
    """Exchange twice, so that what one exchange would leave behind is seen by the next."""
    process_environment.set_for(TrainingOptions(), NOTES)
    world = collective.join()
    if os.environ.get("WITHOUT_LIBRARY") == str(world.rank):
        sys.prefix = str(NOTES)  # an environment for which no library was built
    node = node_exchange.joined(TrainingOptions(), world, None)
    found: dict[str, Any] = {"through": "node" if node else "horovod"}
    if node is not None:
        found |= exchanged(node, world)
    found["niceness"] = sorted({os.getpriority(os.PRIO_PROCESS, thread) for thread in world.threads})
    found["own_niceness"] = os.getpriority(os.PRIO_PROCESS, 0)
    # The first rank to end shuts Horovod down on all, and its threads are gone.
    collective.summed(np.zeros(1), "all have looked")
    (NOTES / f"exchanged-{world.rank}.json").write_text(json.dumps(found))


def exchanged(node: node_exchange.NodeExchange, world: collective.World) -> dict[str, Any]:
    """Average gradients of every kind; each rank's own are its number plus one, times something known."""
    own = float(world.rank + 1)
    variable = tf.Variable([own, own], dtype=tf.float32)
    table = tf.Variable(tf.zeros([3, 2]))

    def average(news: tf.Tensor, long: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            rows = tf.reduce_sum(tf.gather(table, [0, 0]) * own)
        sparse = tape.gradient(rows, table)
        value = variable.read_value()
        twice = tf.identity(long * 2.0)
        gradients = [
            value,  # a variable's own memory
            tf.constant([own, 7.0]),  # the graph's own
            twice,
            twice,  # one memory under two names
            None,
            sparse,
            tf.constant([own], tf.float64),
            tf.zeros([0]),
            long * 3.0,
        ]
        return node.average(gradients, news)

    compiled = tf.function(average)
    for _ in range(2):
        averages, news = compiled(tf.constant([1.0, own]), tf.fill([LONG], own))
    names = ("variable", "constant", "twice", "twice again", "none", "sparse", "double", "empty", "long")
    told = {name: None if a is None else summary(np.asarray(a)) for name, a in zip(names, averages, strict=True)}
    return {**told, "news": news.numpy().tolist(), "kept": variable.numpy().tolist()}


def summary(values: Any) -> list[float]:
    """Return all that differs, in order: a long row of one number is that number."""
    return list(dict.fromkeys(values.ravel().tolist()))


if __name__ == "__main__":
    main()
