"""Tests that need TensorFlow: .venv-training's python runs them, see test_with_tensorflow.py beside this folder."""

from __future__ import annotations

import importlib.util

import pytest

HAS_TENSORFLOW = importlib.util.find_spec("tensorflow") is not None

collect_ignore_glob = [] if HAS_TENSORFLOW else ["*"]


@pytest.fixture(autouse=True, scope="session")
def threads() -> None:
    """Set the number of threads as a training does; it cannot be changed once TensorFlow has started."""
    import tensorflow as tf

    from training_job.process_environment import threads_per_rank

    tf.config.threading.set_intra_op_parallelism_threads(threads_per_rank())
    tf.config.threading.set_inter_op_parallelism_threads(threads_per_rank())


@pytest.fixture(autouse=True)
def fresh_keras() -> None:
    """Start every test with Keras' default names, policies and random numbers."""
    import keras

    keras.utils.clear_session(free_memory=False)
    keras.mixed_precision.set_global_policy("float32")
    keras.utils.set_random_seed(0)
