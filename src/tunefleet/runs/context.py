"""BenchmarkContext: what one run was asked for (SimpleTVM, thesis 3.1)."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Collection
from pathlib import Path
from typing import Any

from tunefleet.core.home import Home, default_home
from tunefleet.core.layout import MachineLayout
from tunefleet.core.target import Target
from tunefleet.errors import InputError, SetupError

_SCHEMA = "tunefleet-context/2"


class BenchmarkContext:
    """One run: target, device and home. What became of it is in the store of its home.

    `target` is "cpu" (this machine) or a target text; `arch` names the processor to generate code
    for instead. `device_key` is the user's name for the device: records measured under another
    key are not reused as they are. `host_cores` and `device_cores` say where this machine builds
    and where it measures (`tunefleet doctor` explains the default). `run_id` has 32 characters.
    """

    def __init__(
        self,
        target: str = "cpu",
        *,
        device_key: str = "",
        arch: str | None = None,
        threads: int | None = None,
        host_cores: Collection[int] | None = None,
        device_cores: Collection[int] | None = None,
        home: Path | str | None = None,
    ) -> None:
        self.run_id = uuid.uuid4().hex
        self.target_text = arch or target
        self.device_key = device_key
        self.threads = threads
        self.host_cores = host_cores
        self.device_cores = device_cores
        self.home = Path(home) if home is not None else default_home()
        self.created_at = time.time()
        self._target: Target | None = None

    @property
    def target(self) -> Target:
        """The parsed target; raises InputError when this machine cannot run its code."""
        if self._target is None:
            from tunefleet.compiler.toolchain.host import check_runs_here, parse_target
            from tunefleet.hardware.processor import machine_layout

            threads = self.threads
            if threads is None and (self.host_cores or self.device_cores):
                threads = machine_layout(None, self.host_cores, self.device_cores).threads
            target = parse_target(self.target_text, threads)
            check_runs_here(target)
            self._target = target
        return self._target

    @property
    def layout(self) -> MachineLayout:
        """Where this machine builds and measures; raises InputError for cores it has not."""
        from tunefleet.hardware.processor import machine_layout

        return machine_layout(self.target.threads, self.host_cores, self.device_cores).layout

    def another(self) -> BenchmarkContext:
        """A context for another run of the same kind."""
        return BenchmarkContext(
            self.target_text,
            device_key=self.device_key,
            threads=self.threads,
            host_cores=self.host_cores,
            device_cores=self.device_cores,
            home=self.home,
        )

    def created(self, path: Path) -> Path:
        """A directory below home, created; raises SetupError when it cannot be."""
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SetupError(
                f"cannot create {path}: {error.strerror}", cure="use --home DIR or TUNEFLEET_HOME"
            ) from error
        return path

    def save(self) -> Path:
        """Write the context to `home/runs/RUN_ID.json` and return that path."""
        path = self.created(Home(self.home).runs) / f"{self.run_id}.json"
        draft = path.with_suffix(".draft")
        draft.write_text(json.dumps(self.to_json(), indent=1))
        os.replace(draft, path)
        return path

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": _SCHEMA,
            "run_id": self.run_id,
            "target": self.target_text,
            "device_key": self.device_key,
            "threads": self.threads,
            "created_at": self.created_at,
        }

    @classmethod
    def load(cls, run_id: str, home: Path | str | None = None) -> BenchmarkContext:
        """The context saved under `run_id`; raises InputError when there is none."""
        context = cls(home=home)
        path = Home(context.home).runs / f"{run_id}.json"
        try:
            value = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise InputError(
                f"no saved run {run_id} in {context.home}: {error}", cure="see `tunefleet jobs`"
            ) from error
        context.run_id = value["run_id"]
        context.target_text = value["target"]
        context.device_key = value["device_key"]
        context.threads = value["threads"]
        context.created_at = value["created_at"]
        return context
