"""The report's pictures: entropy by step, KL by step, a claim's interval, an agent's rung on the ladder.

Each takes parts of a certificate and returns inline SVG with a text alternative that says what the picture shows.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

from markupsafe import Markup

from ppl_tunnels.verification.drawing import LogAxis, mark, nice_ticks, percent, strip, tag
from ppl_tunnels.verification.numerals import numeral, power_of_ten

SHAPES = {"passed": "dot", "undecided": "ring", "failed": "cross"}  # told apart without colour
_STEP_LABELS = 7  # at most, so that they do not touch at 360 px
_TOP, _HEIGHT = 8.0, 200.0  # of a plot's frame, in px


def entropy_by_step(positions: Sequence[dict]) -> Markup:
    """The mean entropy of Bayes (a line) and of the model (points) at each scored step, in bits."""
    ticks = nice_ticks([p[f"{who}_entropy_bits"] for p in positions for who in ("oracle", "model")], 5)

    def y(value: float) -> float:
        return _TOP + _HEIGHT * (ticks[-1] - value) / (ticks[-1] - ticks[0])

    across = _across(positions)
    parts = [*_rules((y(tick), f"{tick:.6g}") for tick in ticks), *_step_labels(positions)]
    joined = set()
    for (i, a), (j, b) in pairwise(enumerate(positions)):
        if b["step"] == a["step"] + 1:  # steps that are not scored leave a gap
            ends = {"y1": y(a["oracle_entropy_bits"]), "y2": y(b["oracle_entropy_bits"])}
            parts.append(tag("line", "bayes", x1=percent(across[i]), x2=percent(across[j]), **ends))
            joined |= {i, j}
    for who, name, css in (("oracle", "Bayes", "bayes"), ("model", "model", "model")):
        for index, (p, x) in enumerate(zip(positions, across, strict=True)):
            value = p[f"{who}_entropy_bits"]
            shape = "dot" if who == "model" else "joint" if index in joined else "dash"
            words = f"step {p['step']}: {name} {numeral(value, digits=4)} bits"
            parts.append(mark(shape, css, x, y(value), words, f"positions[{index}].{who}_entropy_bits", value))
    first, last = positions[0], positions[-1]
    far = max(positions, key=lambda p: abs(p["model_entropy_bits"] - p["oracle_entropy_bits"]))
    summary = (
        f"Mean entropy by step, in bits. Bayes: {numeral(first['oracle_entropy_bits'])} at step {first['step']}, "
        f"{numeral(last['oracle_entropy_bits'])} at step {last['step']}. The model's mean is farthest from it at step "
        f"{far['step']}: {numeral(far['model_entropy_bits'], digits=4)} against "
        f"{numeral(far['oracle_entropy_bits'], digits=4)}."
    )
    return _plot(summary, parts)


def kl_by_step(positions: Sequence[dict], tolerance: float) -> Markup:
    """KL to the oracle at each scored step with its bounds, in bits on a log axis, and the tolerance line."""
    axis = LogAxis.covering([p[name] for p in positions for name in ("kl_bits", "kl_lower", "kl_upper")], tolerance)

    def y(value: float | None) -> float:
        return _TOP + _HEIGHT * (1 - axis.at(value))

    line = y(tolerance)
    parts = [
        tag("rect", "beyond", x="0", width="100%", y=_TOP, height=line - _TOP),
        *_rules((_TOP + _HEIGHT * (1 - place), power_of_ten(k)) for k, place in axis.decades),
        *_step_labels(positions),
        tag("line", "tolerance", x1="0", x2="100%", y1=line, y2=line),
    ]
    for index, (p, x) in enumerate(zip(positions, _across(positions), strict=True)):
        value, ends = p["kl_bits"], {"y1": y(p["kl_lower"]), "y2": y(p["kl_upper"])}
        parts.append(tag("line", "interval", x1=percent(x), x2=percent(x), **ends))
        shape = axis.shape(value, inside=SHAPES[p["verdict"]], below="down", above="up")
        words = f"step {p['step']}: KL {between(p['kl_lower'], p['kl_upper'])} bits, {p['verdict']}"
        parts.append(mark(shape, "model", x, y(value), words, f"positions[{index}].kl_bits", value))
    parts.append(tag("text", "tolerance-label end", f"tolerance {numeral(tolerance)}", x="100%", y=line - 6))
    worst = max(positions, key=lambda p: math.inf if p["kl_upper"] is None else p["kl_upper"])
    counts = [f"{sum(p['verdict'] == word for p in positions)} {word}" for word in SHAPES]
    summary = (
        f"KL to the oracle by step, in bits, on a log axis, against a tolerance of {numeral(tolerance)}. Largest upper "
        f"bound: step {worst['step']}, {between(worst['kl_lower'], worst['kl_upper'])}. Steps: {', '.join(counts)}."
    )
    return _plot(summary, parts)


def claim_interval(claim: dict, path: str, axis: LogAxis) -> Markup:
    """One claim's estimate and interval, as multiples of its own tolerance."""
    lower, estimate, upper = (
        None if claim[name] is None else claim[name] / claim["tolerance"] for name in ("lower", "estimate", "upper")
    )
    words = f"{claim['title']}: {between(claim['lower'], claim['upper'])}, tolerance {numeral(claim['tolerance'])}"
    start = axis.at(0.0 if lower is None else lower)
    line = tag("line", "interval", x1=percent(start), x2=percent(axis.at(upper)), y1="50%", y2="50%")
    shape = axis.shape(estimate, inside=SHAPES[claim["verdict"]], below="left", above="right")
    dot = mark(shape, "model", axis.at(estimate), "50%", words, f"{path}.estimate", claim["estimate"])
    return strip(words, axis, 1.0, [line, dot])


def rung(agent: str, kl_bits: float | None, path: str, axis: LogAxis, tolerance: float, *, css: str) -> Markup:
    """One agent's KL to the oracle as a dot on the ladder's common axis; None means unbounded."""
    amount = "unbounded" if kl_bits is None else f"{numeral(kl_bits)} bits"
    words = f"{agent}: KL {amount}, tolerance {numeral(tolerance)}"
    shape = axis.shape(kl_bits, inside="dot", below="left", above="right")
    return strip(words, axis, tolerance, [mark(shape, css, axis.at(kl_bits), "50%", words, path, kl_bits)])


def between(lower: float | None, upper: float | None) -> str:
    """An interval in words, rounded outwards; None is a bound that is not known.

    Example:
        >>> between(0.0012345, 0.0067891), between(None, 0.1)
        ('between 0.00123 and 0.00679', 'at most 0.1')
    """
    low, high = (numeral(x or 0, rounding=way) for x, way in ((lower, "down"), (upper, "up")))
    if lower is None:
        return "not bounded" if upper is None else f"at most {high}"
    return f"at least {low}" if upper is None else f"between {low} and {high}"


def _plot(summary: str, parts: Iterable[Markup]) -> Markup:
    content = Markup("").join(parts)
    return tag("svg", "plot", content, role="img", aria_label=summary, width="100%", height=_TOP + _HEIGHT)


def _rules(ticks: Iterable[tuple[float, str]]) -> list[Markup]:
    parts = []
    for y, label in ticks:
        parts.append(tag("line", "grid", x1="0", x2="100%", y1=y, y2=y))
        parts.append(tag("text", "end", label, x="-8", y=y + 4))
    return parts


def _across(positions: Sequence[dict]) -> list[float]:
    first, last = positions[0]["step"], positions[-1]["step"]
    return [(p["step"] - first + 0.5) / (last - first + 1) for p in positions]


def _step_labels(positions: Sequence[dict]) -> list[Markup]:
    first, last = positions[0]["step"], positions[-1]["step"]
    every = next(m * 10**k for k in range(16) for m in (1, 2, 5) if (last - first) / (m * 10**k) < _STEP_LABELS)
    # The first step is always named; a round one too close to it gives way.
    steps = [first, *(s for s in range(first + 1, last + 1) if s % every == 0 and s - first > every / 2)]
    across, y = _across([{"step": first}, {"step": last}]), _TOP + _HEIGHT + 18
    places = [across[0] + (step - first) / (last - first + 1) for step in steps]
    return [tag("text", "middle", str(step), x=percent(x), y=y) for step, x in zip(steps, places, strict=True)]
