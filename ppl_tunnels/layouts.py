"""Layouts: what stands at each position of the sequence that a model reads, and where each prediction is read, as text.

    header    "TRANS {transition} EMIT {emission} SEP"        context, written up front
    steps     "OBS {symbol}", "OBS {symbol}", …               one line a step

`{site}` writes a site's values, any other word is a marker, `FILL*32` repeats. The prediction of a stream site is read at
the position just before its own values, that of a latent at the end of its step; `!` after an item reads it there instead
("QUERY {key} _!": the answer is read at the blank and never shown).

A layout is checked when it is used: before a prediction is read, a step shows exactly what the oracle conditions on. An
answer shown too early would teach copying; evidence withheld would make Bayes' answer impossible.
"""

import dataclasses
import itertools
import re
from collections.abc import Sequence
from typing import Any

from ppl_tunnels.errors import TunnelError, suggest

_ITEM = re.compile(r"(?:\{(?P<site>[^{}]+)\}|(?P<marker>[^\s{}!*]+))(?:\*(?P<times>\d+))?(?P<read>!)?(?=\s|$)")


@dataclasses.dataclass(frozen=True)
class Layout:
    """How episodes are written.

    Attributes:
        header: context sites and markers.
        steps: one line a step, of stream sites and markers.
        shared: groups of sites that share one range of tokens.

    Example:
        >>> Layout("TRANS {rows} SEP", ("OBS {symbol}",) * 3).markers
        ('TRANS', 'SEP', 'OBS')
    """

    header: str = ""
    steps: tuple[str, ...] = ()
    shared: tuple[tuple[str, ...], ...] = ()

    @property
    def markers(self) -> tuple[str, ...]:
        """Every marker, in order of appearance."""
        lines = [self.header, *dict.fromkeys(self.steps)]
        return tuple(dict.fromkeys(item.marker for line in lines for item in items(line) if item.marker is not None))

    def to_json(self) -> dict[str, Any]:
        """Plain data; equal lines in a row are counted."""
        steps = [[line, len(list(run))] for line, run in itertools.groupby(self.steps)]
        return {"header": self.header, "steps": steps, "shared": [list(group) for group in self.shared]}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Layout":
        """The layout that `to_json` wrote."""
        steps = tuple(str(line) for line, count in data["steps"] for _ in range(int(count)))
        return cls(str(data["header"]), steps, tuple(tuple(map(str, group)) for group in data["shared"]))


@dataclasses.dataclass(frozen=True)
class Item:
    """One word of a line: a site or a marker, and whether the step's prediction is read there."""

    site: str | None
    marker: str | None
    read: bool


def items(line: str) -> tuple[Item, ...]:
    """The words of one line.

    Example:
        >>> [(item.site or item.marker, item.read) for item in items("FILL*2 QUERY {key} _!")]
        [('FILL', False), ('FILL', False), ('QUERY', False), ('key', False), ('_', True)]

    Raises:
        TunnelError: it cannot be read.
    """
    found, position = [], 0
    while position < len(line):
        if line[position].isspace():
            position += 1
            continue
        match = _ITEM.match(line, position)
        if match is None:
            raise TunnelError(
                f"layout line {line!r} cannot be read from {line[position:]!r} on; write sites as {{site}}, markers as words, "
                "repetitions as WORD*3 and '!' after the item at which the prediction is read"
            )
        times = int(match["times"] or 1)
        plain = Item(match["site"], match["marker"], False)
        found += [plain] * (times - 1) + [dataclasses.replace(plain, read=match["read"] is not None)] * (times > 0)
        position = match.end()
    return tuple(found)


def check_layout(
    layout: Layout, *, context: Sequence[str], stream: Sequence[str], predict: str, scored: Sequence[bool]
) -> None:
    """See to it that every prediction that counts is read where exactly its evidence has been shown.

    Args:
        layout: to be checked.
        context, stream: names of the sites, in program order.
        predict: the predicted site.
        scored: whether each step's prediction counts.

    Raises:
        TunnelError: names the line and the site.
    """
    if len(layout.steps) != len(scored):
        raise TunnelError(f"the layout has {len(layout.steps)} lines of steps; the episode has {len(scored)} steps")
    _check_sites("header", layout.header, context, (*context, *stream))
    if any(item.read for item in items(layout.header)):
        raise TunnelError(
            f"the layout's header {layout.header!r} reads a prediction; predictions are read within steps"
        )
    checked = set()
    for step, line in enumerate(layout.steps):
        if (line, bool(scored[step])) not in checked:
            _check_step(line, stream, predict, bool(scored[step]), (*context, *stream))
            checked.add((line, bool(scored[step])))


def _check_sites(what: str, line: str, wanted: Sequence[str], known: Sequence[str]) -> None:
    shown = [item.site for item in items(line) if item.site is not None]
    for site in shown:
        if site not in known:
            raise TunnelError(
                f"the layout's {what} {line!r} shows {site!r}, which is no site; {suggest(site, list(known))}"
            )
        if site not in wanted:
            role = "stream site, shown in its steps" if what == "header" else "context site, shown in the header"
            raise TunnelError(f"the layout's {what} {line!r} shows {site!r}, a {role}; move it there")
        if shown.count(site) > 1:
            raise TunnelError(f"the layout's {what} {line!r} shows {site!r} twice; once is enough")
    for site in wanted:
        if site not in shown:
            raise TunnelError(f"the layout's {what} {line!r} never shows {site!r}; add {{{site}}}")


def _check_step(line: str, stream: Sequence[str], predict: str, scored: bool, known: Sequence[str]) -> None:
    parts = items(line)
    marked = [index for index, item in enumerate(parts) if item.read]
    if len(marked) > 1:
        raise TunnelError(f"the layout's step {line!r} reads {len(marked)} predictions; a step has one")
    shown = {item.site for item in parts}
    # An answer may be left out, where the place to read it is marked or it does not count.
    may_be_absent = {predict} if marked or not scored else set()
    _check_sites("step", line, [site for site in stream if site in shown or site not in may_be_absent], known)
    if not scored:
        return
    evidence = set(stream[: stream.index(predict)] if predict in stream else stream)
    before = parts[: read_after(parts, predict)]
    early = [item.site for item in before if item.site is not None and item.site not in evidence]
    if early:
        raise TunnelError(
            f"the layout's step {line!r} shows {early[0]!r} before the prediction of {predict!r} is read; its answer must not "
            "stand at or before the position that predicts it: move '!', or the site"
        )
    late = [site for site in stream if site in evidence and site not in {item.site for item in before}]
    if late:
        raise TunnelError(
            f"the layout's step {line!r} shows {late[0]!r} only after the prediction of {predict!r} is read, so Bayes' answer "
            "could not be given there; show it before"
        )


def read_after(parts: Sequence[Item], predict: str) -> int:
    """How many items of a step stand before its prediction is read."""
    for index, item in enumerate(parts):
        if item.read:
            return index + 1
    names = [item.site for item in parts]
    return names.index(predict) if predict in names else len(parts)
