"""Images of environments: which virtual environment stands for one, and its build on first use."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from local_azure.azure_ml.errors import JobFailure
from local_azure.azure_ml.settings import Settings
from local_azure.azure_ml.store import Store
from local_azure.azure_ml.workspace import asset_name

_BUILT = "built-environment"


class Images:
    """Images by environment id; safe between threads. What was built once stays built."""

    def __init__(self, settings: Settings, store: Store) -> None:
        self._settings = settings
        self._store = store
        self._building = threading.Lock()

    def virtual_environment(self, environment_id: str) -> Path:
        """Directory that stands for an environment; JobFailure where the emulator was given none."""
        name = asset_name(environment_id)
        directory = self._settings.environments.get(name)
        if directory is None:
            raise JobFailure(
                f"Image build failed: no virtual environment stands for environment {name!r}. "
                f"Start the emulator with --python-environment {name}=VENV.",
                inner="ImageBuildFailure",
            )
        return directory

    def build(self, environment_id: str, pause: Callable[[float], None]) -> None:
        """Take the time of a build on an environment's first use; who comes meanwhile waits for it."""
        with self._building:
            if self._store.get(_BUILT, environment_id) is None:
                pause(self._settings.environment_build_s)
                self._store.put(_BUILT, environment_id, {})
