"""Tests of what needs TensorFlow: run by .venv-training's python, see test_with_tensorflow.py beside this folder."""

from __future__ import annotations

import importlib.util

import pytest

HAS_TENSORFLOW = importlib.util.find_spec("tensorflow") is not None

collect_ignore_glob = [] if HAS_TENSORFLOW else ["*"]


@pytest.fixture(autouse=True)
def fresh_keras() -> None:
    """Start every test with Keras' own names, policies and random numbers."""
    import keras

    keras.utils.clear_session(free_memory=False)
    keras.mixed_precision.set_global_policy("float32")
    keras.utils.set_random_seed(0)
