"""What comes of comparing an oracle's numbers with a referee's."""

import dataclasses
from typing import Any

import numpy as np

RELATIVE, FLOOR = 1e-12, 1e-15
# A referee that is less sure than this has not judged.
UNSURE = 1e-6
UNDEFINED = "undefined (NaN) for some data"


@dataclasses.dataclass
class Verdict:
    """What came of one engine on one program.

    Attributes:
        engine: its name.
        programs: shapes with numbers: every episode has numbers of its own, where the shape takes any.
        cases: episodes times masks compared.
        compared: numbers compared.
        unsure: numbers that the referee could not judge.
        worst: the largest relative deviation seen of a number that was judged.
        excess: the largest deviation in units of the tolerance.
        refused: why nothing was computed ("" if it was).
        partly: further refusals, quantity to message.
        crashes: faults that are no refusals, quantity to message.
        disagreement: the first number beyond its tolerance, in words ("" if none).
    """

    engine: str
    programs: int = 0
    cases: int = 0
    compared: int = 0
    unsure: int = 0
    worst: float = 0.0
    excess: float = 0.0
    refused: str = ""
    partly: dict[str, str] = dataclasses.field(default_factory=dict)
    crashes: dict[str, str] = dataclasses.field(default_factory=dict)
    disagreement: str = ""

    def note(self, what: str, got: Any, expected: np.ndarray, error: np.ndarray) -> None:
        """Compare some numbers with what they should be, give or take an error.

        An oracle refuses what comes out as NaN, which it cannot say while it is traced; other numbers are compared all the same.
        """
        got = np.asarray(got)
        if got.shape != expected.shape:
            self.disagreement = self.disagreement or f"{what}: shape {got.shape}, expected {expected.shape}"
            return
        scale = np.abs(np.where(np.isfinite(expected), expected, 0.0))
        same = (got == expected) & ~np.isfinite(expected)
        with np.errstate(invalid="ignore"):
            off = np.where(same, 0.0, np.abs(got - expected))
        undefined = np.isnan(got)
        if undefined.any():
            self.partly[what.partition(" under ")[0]] = UNDEFINED
        off = np.where(np.isnan(off), np.inf, off)
        allowed = error + RELATIVE * scale + FLOOR
        judged = (error <= UNSURE * np.maximum(scale, 1e-9)) & ~undefined
        self.compared, self.unsure = self.compared + int(judged.sum()), self.unsure + int((~judged & ~undefined).sum())
        excess = np.where(judged, off / allowed, 0.0)
        seen = judged & (off > FLOOR)
        relative = off[seen] / np.maximum(scale[seen], 1e-300)
        self.worst = max(self.worst, float(relative[relative < np.inf].max(initial=0.0)))
        self.excess = max(self.excess, float(excess.max(initial=0.0)))
        if excess.max(initial=0.0) > 1 and not self.disagreement:
            place = tuple(int(i) for i in np.unravel_index(int(excess.argmax()), excess.shape))
            self.disagreement = (
                f"{what} at {place}: oracle {got[place]!r}, referee {expected[place]!r} +- {error[place]:.1e} (off by "
                f"{off[place]:.3e}, allowed {allowed[place]:.1e})"
            )

    @property
    def wrong(self) -> bool:
        """Whether something was answered, and not as the referee answers it, or the engine broke down."""
        return bool(self.disagreement or self.crashes)
