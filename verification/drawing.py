"""The parts of the report's pictures: axes, marks and rules, as SVG that takes its colours and type from the page.

Places across are percentages and places down are pixels (or percentages): a picture fills whatever width it is given
while its text, dots and lines keep their size, where a viewBox would shrink 12 px labels to 5 px on a phone. What lies
on an axis carries its JSON path and value: a picture can be checked against its certificate like any other number.
"""

import dataclasses
import json
import math
from collections.abc import Iterable, Sequence

from markupsafe import Markup

from ppl_tunnels.verification.numerals import power_of_ten

_DECADES_BELOW = 4  # under tolerance / 10⁴ nothing more is learned: smaller values sit on the axis's edge, as arrows
_MOST_LABELS = 8  # of decades, side by side above a strip of 200 px
_PATHS = {
    "dot": "M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0z",
    "ring": "M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0z",
    "cross": "M-4 -4L4 4M4 -4L-4 4",
    "dash": "M-7 0H7",
    "joint": "M-.1 0H.1",
    "down": "M-4 -7H4L0 0z",
    "up": "M-4 7H4L0 0z",
    "left": "M7 -4V4L0 0z",
    "right": "M-7 -4V4L0 0z",
}


@dataclasses.dataclass(frozen=True)
class LogAxis:
    """A logarithmic axis over whole decades, 10**low to 10**high."""

    low: int
    high: int

    @classmethod
    def covering(cls, values: Iterable[float | None], anchor: float) -> "LogAxis":
        """The decades that hold the values and leave room on both sides of the anchor (a tolerance).

        Example:
            >>> LogAxis.covering([0.0003, 2.5, None], 0.01)
            LogAxis(low=-4, high=1)
        """
        middle = math.log10(anchor)
        places = [math.log10(value) for value in values if value is not None and value > 0] or [middle]
        low = max(math.floor(min(places)), math.floor(middle) - _DECADES_BELOW)
        return cls(min(math.ceil(middle) - 1, low), max(math.floor(middle) + 1, math.ceil(max(places))))

    def at(self, value: float | None) -> float:
        """The value's place, 0 to 1; 0 for what is below the axis, and 1 for None, which means unbounded."""
        if value is None:
            return 1.0
        place = (math.log10(value) - self.low) / (self.high - self.low) if value > 0 else 0.0
        return min(1.0, max(0.0, place))

    def shape(self, value: float | None, *, inside: str, below: str, above: str) -> str:
        """The mark for a value: `inside`, or an arrow where the axis ends before the value does."""
        if value is None:
            return above
        return below if value < 10.0**self.low else inside

    @property
    def decades(self) -> list[tuple[int, float]]:
        """Each tick: its exponent and its place, 0 to 1."""
        return [(k, (k - self.low) / (self.high - self.low)) for k in range(self.low, self.high + 1)]


def nice_ticks(values: Sequence[float], most: int) -> list[float]:
    """At most `most` + 1 round ticks, evenly spaced, that include zero and enclose the values.

    Example:
        >>> nice_ticks([0.9, 4.32], 5)
        [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    """
    low, high = min(0.0, *values), max(0.0, *values)
    start = math.floor(math.log10((high - low) / most)) if high > low else 0
    for unit in (m * 10.0**k for k in (start, start + 1) for m in (1, 2, 5)):
        first, last = math.floor(low / unit + 1e-9), max(1, math.ceil(high / unit - 1e-9))
        if last - first <= most:
            break
    return [k * unit for k in range(first, last + 1)]


def tag(name: str, css: str = "", content: str | Markup = "", **attributes: object) -> Markup:
    """One SVG element, escaped; `aria_label` is written aria-label, and pixels in two decimals."""
    pairs = {"class": css} | {name.replace("_", "-"): value for name, value in attributes.items()}
    shown = {n: f"{v:.2f}".rstrip("0").rstrip(".") if isinstance(v, float) else v for n, v in pairs.items() if v != ""}
    written = Markup("").join(Markup(' {}="{}"').format(n, v) for n, v in shown.items())
    return Markup("<{0}{1}>{2}</{0}>").format(name, written, content)


def percent(share: float) -> str:
    """A place across, as an SVG length."""
    return f"{100 * share:.2f}".rstrip("0").rstrip(".") + "%"


def mark(shape: str, css: str, x: float, y: float | str, words: str, path: str, value: float | None) -> Markup:
    """A mark at x (0 to 1) and y (pixels or a length) for the certificate's number at `path`."""
    # A nested svg has a place in percent, which a path has not. The title is what a pointer at rest shows.
    drawn = tag("path", f"{css} {shape}", tag("title", "", words), d=_PATHS[shape])
    return tag("svg", "mark", drawn, x=percent(x), y=y, data_path=path, data_value=json.dumps(value))


def key(shape: str, css: str) -> Markup:
    """A mark on its own, for a caption that says what it stands for."""
    drawn = tag("path", f"{css} {shape}", d=_PATHS[shape])
    return tag("svg", "key", drawn, viewBox="-8 -8 16 16", width="16", height="16", aria_hidden="true")


def strip(words: str, axis: LogAxis, anchor: float, parts: Sequence[Markup]) -> Markup:
    """A table cell's picture: decades, the anchor (a tolerance) and what lies beyond it, then `parts`."""
    edge = axis.at(anchor)
    rules = [tag("line", "grid", x1=percent(x), x2=percent(x), y1="0", y2="100%") for _, x in axis.decades]
    back = [tag("rect", "beyond", x=percent(edge), width=percent(1 - edge), y="0", height="100%"), *rules]
    line = tag("line", "tolerance", x1=percent(edge), x2=percent(edge), y1="0", y2="100%")
    return tag("svg", "strip", Markup("").join([*back, line, *parts]), role="img", aria_label=words)


def scale(axis: LogAxis, *, one: str = "1") -> Markup:
    """The tick labels above a column of strips; `one` labels 10⁰, and where decades are many every other is named."""
    every = 1 if len(axis.decades) <= _MOST_LABELS else 2
    ticks = [
        tag("text", "middle", one if k == 0 else power_of_ten(k), x=percent(x), y="12")
        for k, x in axis.decades
        if k % every == 0
    ]
    return tag("svg", "scale", Markup("").join(ticks), width="100%", height="16", aria_hidden="true")
