"""What a campaign has seen so far: one JSON line a program shape, in a file that outlives the process."""

import collections
import dataclasses
import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Entry = dict[str, Any]


class Journal:
    """Entries of a file, to which more are appended.

    A line that was cut short by a kill is overwritten; whatever is complete stays.

    Args:
        path: of the file; made with its folder if there is none.
    """

    def __init__(self, path: Path):
        path.parent.mkdir(parents=True, exist_ok=True)
        self.entries: list[Entry] = []
        self._file = path.open("a+b")
        self._file.seek(0)
        whole = 0
        for line in self._file:
            if not line.endswith(b"\n"):
                break
            try:
                self.entries.append(json.loads(line))
            except ValueError:
                break
            whole += len(line)
        self._file.truncate(whole)

    def add(self, entry: Entry) -> None:
        """Append an entry and see to it that it is on the disk."""
        self.entries.append(entry)
        self._file.write(json.dumps(entry).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


@dataclasses.dataclass
class Totals:
    """Counts over entries.

    Attributes:
        specs: programs as they were generated, one a seed.
        shapes: of them, up to their numbers and the names of their sites.
        programs: shapes with numbers of their own; a refused shape counts as one.
        cases: episodes times masks compared.
        compared: numbers compared.
        unsure: numbers that the referee could not judge.
        engines: how many specs each engine was chosen for.
        worst: engine to the largest relative deviation, and the seed that showed it.
        excess: engine to the largest deviation in units of the tolerance, and the seed.
        inside: specs within the stated reach, and how many of them were derived.
        outside: specs out of it, how many of them were refused, and how many of the others were answered rightly.
        refusals: reason to how many specs, within the stated reach.
        partly: the same of single questions (posteriors, mostly) where the rest was answered.
        wrong: entries with a disagreement or a crash.
        seconds: of processor time, by what they were spent on.
    """

    specs: int = 0
    shapes: set[str] = dataclasses.field(default_factory=set)
    programs: int = 0
    cases: int = 0
    compared: int = 0
    unsure: int = 0
    engines: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    worst: dict[str, tuple[float, int]] = dataclasses.field(default_factory=dict)
    excess: dict[str, tuple[float, int]] = dataclasses.field(default_factory=dict)
    inside: list[int] = dataclasses.field(default_factory=lambda: [0, 0])
    outside: list[int] = dataclasses.field(default_factory=lambda: [0, 0, 0])
    refusals: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    partly: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    wrong: list[Entry] = dataclasses.field(default_factory=list)
    seconds: float = 0.0

    def add(self, entry: Entry) -> None:
        """Count one more."""
        verdicts = entry["verdicts"]
        self.specs, self.seconds = self.specs + 1, self.seconds + entry["seconds"]
        self.shapes.add(entry["shape"])
        if any(verdict["disagreement"] or verdict["crashes"] for verdict in verdicts):
            self.wrong.append(entry)
        refused = verdicts[0]["refused"]
        self.programs += 1 if refused else verdicts[0]["programs"]
        self.engines[verdicts[0]["engine"]] += 1
        if entry["reach"] == "inside":
            self.inside[0], self.inside[1] = self.inside[0] + 1, self.inside[1] + (not refused)
            self.refusals.update([without_names(refused)] if refused else [])
            partly = {} if refused else verdicts[0]["partly"]
            self.partly.update({f"{what.partition(' ')[0]}: {without_names(why)}" for what, why in partly.items()})
        else:
            right = not refused and not (verdicts[0]["disagreement"] or verdicts[0]["crashes"])
            self.outside = [a + b for a, b in zip(self.outside, (1, bool(refused), right), strict=True)]
        for verdict in verdicts:
            for name in ("cases", "compared", "unsure"):
                setattr(self, name, getattr(self, name) + verdict[name])
            for most, name in ((self.worst, "worst"), (self.excess, "excess")):
                if verdict["compared"] and verdict[name] >= most.get(verdict["engine"], (0.0, 0))[0]:
                    most[verdict["engine"]] = verdict[name], entry["seed"]

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> "Totals":
        """Of some entries."""
        totals = cls()
        for entry in entries:
            totals.add(entry)
        return totals

    def line(self) -> str:
        """Progress in one line."""
        per_minute = 60 * self.programs / max(self.seconds, 1e-9)
        return (
            f"{self.programs:,} programs of {len(self.shapes):,} shapes, {self.cases:,} cases, {len(self.wrong)} wrong, "
            f"{per_minute:.0f} programs a minute of processor time"
        )

    def summary(self) -> str:
        """Everything, in a dozen lines or more."""
        lines = [self.line(), f"{self.compared:,} numbers compared; the referee was unsure of {self.unsure:,} more"]
        lines.append(f"inside the stated reach: {self.inside[1]:,} of {self.inside[0]:,} derived")
        lines.append(
            f"outside: {self.outside[1]:,} of {self.outside[0]:,} refused, {self.outside[2]:,} answered as the referee does"
        )
        for engine, count in self.engines.most_common():
            said = f"  {engine}: {count:,} specs"
            if engine in self.worst:
                (worst, seed), (excess, at) = self.worst[engine], self.excess[engine]
                said += f"; largest relative error {worst:.1e} (seed {seed}), {excess:.2g} of the tolerance (seed {at})"
            lines.append(said)
        lines += [f"  refused inside ({count:,}): {reason}" for reason, count in self.refusals.most_common()]
        lines += [f"  refused in part ({count:,}): {reason}" for reason, count in self.partly.most_common()]
        for entry in self.wrong:
            for verdict in entry["verdicts"]:
                said = [verdict["disagreement"]] * bool(verdict["disagreement"])
                said += [f"{what}: {text}" for what, text in verdict["crashes"].items()]
                lines += [
                    f"  WRONG seed {entry['seed']}, {entry['family']}, {verdict['engine']}: {text}" for text in said
                ]
        return "\n".join(lines)


def without_names(reason: str) -> str:
    """A refusal without what it quotes and counts, so that equal reasons are equal."""
    return re.sub(r"\d[\d.,e+-]*", "#", re.sub(r"'[^']*'(, '[^']*')*", "…", reason))[:240]
