"""A progress bar on stderr for certification; silent where stderr is not a terminal."""

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


class CertificationProgress:
    """A context manager that is called with (stage, done, total)."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        columns = (TextColumn("     {task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self.progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self.tasks: dict[str, int] = {}

    def __enter__(self) -> "CertificationProgress":
        self.progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.progress.stop()

    def __call__(self, stage: str, done: int, total: int) -> None:
        if stage not in self.tasks:
            self.tasks[stage] = self.progress.add_task(stage, total=total)
        self.progress.update(self.tasks[stage], completed=done, total=total)
