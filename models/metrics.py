"""Where training stands: one row per call to the device, in bits, kept, written as JSON lines and shown."""

import dataclasses
import json
from pathlib import Path
from types import TracebackType
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@dataclasses.dataclass(frozen=True)
class TrainingMetrics:
    """Means over the steps of one call, and so over fresh episodes that the model had not seen.

    Example:
        >>> row = TrainingMetrics(50, loss_bits=3.5, irreducible_bits=3.25, kl_bits=0.25, learning_rate=0.01, seconds=1)
        >>> row.loss_bits - row.irreducible_bits
        0.25
    """

    step: int  # optimiser steps done
    loss_bits: float  # cross-entropy against the targets, per scored prediction
    irreducible_bits: float  # the exact law's own loss on the same targets: its entropy, for oracle targets
    kl_bits: float  # KL(oracle ‖ model) per scored prediction, exact on these episodes
    learning_rate: float  # of the last step
    seconds: float  # of training so far, compilation apart


class MetricsLog:
    """A context manager that shows rows on stderr and writes them to a file, whole lines only.

    Args:
        path: of the JSON lines file, or None; what an earlier run left there is replaced.
        steps: in total.
        show: whether there is a progress bar on stderr (drawn only where stderr is a terminal).
    """

    def __init__(self, path: Path | None, *, steps: int, show: bool):
        self._path = path
        self._file: TextIO | None = None
        console = Console(stderr=True)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[status]}"),
            TimeRemainingColumn(),
        )
        self._bar = Progress(*columns, console=console, disable=not (show and console.is_terminal))
        self._task = self._bar.add_task("compiling", total=steps, status="")

    def __enter__(self) -> "MetricsLog":
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("w", encoding="utf-8")
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()
        if self._file is not None:
            self._file.close()

    def compiled(self, seconds: float) -> None:
        """Compilation is over; what the bar counts from here on is training."""
        if not self._bar.disable:
            self._bar.console.print(f"compiled in {seconds:.1f} s", highlight=False)
        self._bar.reset(self._task, description="training")

    def write(self, row: TrainingMetrics) -> None:
        """Show and keep one row."""
        status = f"loss {row.loss_bits:.4f} (irreducible {row.irreducible_bits:.4f})  KL {row.kl_bits:.1e} bits"
        self._bar.update(self._task, completed=row.step, status=status)
        if self._file is not None:
            self._file.write(json.dumps(dataclasses.asdict(row), allow_nan=False) + "\n")
            self._file.flush()
