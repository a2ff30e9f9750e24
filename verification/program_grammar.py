"""Which small programs there are: random specs of `random_programs`, one function for each family.

Every choice is one `pick` from a list whose simplest item comes first, so that the same grammar serves a seeded generator and
Hypothesis (which shrinks towards the first item). A spec says whether an engine must reach it; programs out of reach are near
relatives of those within.
"""

import dataclasses
import random
from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from ppl_tunnels.verification.random_programs import COPY, INSIDE, PHASE, Draw, Ref, Spec

T = TypeVar("T")

# Names that programs could really use, some of them awkward: not Python identifiers, Greek, out of alphabetical order.
_NAMES = (
    *(
        "x",
        "z",
        "y",
        "a",
        "state",
        "θ",
        "0",
        "obs",
        "_w",
        "rate",
        "Beta",
        "next value",
        "carry",
        "u",
        "k",
        "probs",
        "t",
        "scale",
    ),
    *(
        "B",
        "mean",
        "first",
        "σ²",
        "value",
        "loc",
        "node",
        "p(x)",
        "key",
        "λ",
        "weights",
        "last",
        "e",
        "i",
        "Z",
        "trace",
        "fn",
    ),
)
# Joint values of the finite latents: what a referee can list for every episode.
MOST_HYPOTHESES = 700


class Choices(Protocol):
    """Where the grammar's choices come from."""

    def pick(self, options: Sequence[T]) -> T:
        """One of the options."""
        ...


class Seeded:
    """Choices of a pseudo-random generator."""

    def __init__(self, seed: int | str):
        self.random = random.Random(seed)

    def pick(self, options: Sequence[T]) -> T:
        """One of the options, all equally likely."""
        return options[self.random.randrange(len(options))]


class Grammar:
    """Draws of one program in the making.

    Args:
        choices: where its choices come from.
    """

    def __init__(self, choices: Choices):
        self.choices, self.draws, self.names = choices, [], list(_NAMES)
        self.seed = self.pick(range(1000))

    def pick(self, options: Sequence[T]) -> T:
        """One of the options; the first is the simplest."""
        return self.choices.pick(options)

    def often(self) -> bool:
        """True three times in four; what is simple comes first."""
        return self.pick((True, True, True, False))

    def seldom(self) -> bool:
        """True once in four times."""
        return self.pick((False, False, False, True))

    def name(self) -> str:
        """A name that no other site has."""
        name = self.pick(self.names)
        self.names.remove(name)
        return name

    def add(self, law: str, role: str = "latent", *, name: str = "", **settings: Any) -> Draw:
        """One more draw, its table in the context more often than not."""
        draw = Draw(name or self.name(), law, role, **settings)
        if draw.has_table and self.often():
            draw = dataclasses.replace(draw, numbers=self.name())
        self.draws.append(draw)
        return draw

    def reference(self, draw: Draw, lag: int = 0) -> Ref:
        """A reference to a draw, or to one of its copies."""
        return Ref(draw.name, lag, self.pick(range(draw.copies)) if draw.copies else -1)

    def some(self, options: Sequence[T], most: int = 2) -> list[T]:
        """A few of the options, in order."""
        chosen = [option for option in options if self.pick((False, True))]
        return chosen[:most]

    def finite(self, role: str = "latent", **settings: Any) -> Draw:
        """A Bernoulli or Categorical draw."""
        law, size = self.pick((("bernoulli", 2), ("categorical", 2), ("categorical", 3)))
        zeros = self.seldom()
        form = "" if zeros or self.often() else "logits"
        return self.add(law, role, size=size, zeros=zeros, form=form, **settings)

    def hypotheses(self, steps: int) -> int:
        """Joint values of the finite latents of a program of this length."""
        total = 1
        for draw in self.draws:
            if draw.role == "latent" and draw.values:
                total *= draw.values ** (max(draw.copies, 1) * (1 if draw.once else steps))
        return total

    def spec(self, family: str, layout: str, *, steps: Sequence[int], reach: str = INSIDE, **settings: Any) -> Spec:
        """The program, as long as the referee can list its hypotheses; a random stream or latent site is predicted."""
        length = self.pick(steps)
        while length > 1 and self.hypotheses(length) > MOST_HYPOTHESES:
            length -= 1
        streams = [draw.name for draw in self.draws if draw.role == "stream"]
        return Spec(
            family,
            layout,
            1 if layout == "none" else length,
            tuple(self.draws),
            self.pick(streams[::-1]),
            seed=self.seed,
            reach=reach,
            step_name=self.name(),
            **settings,
        )

    def phase(self, layout: str) -> dict[str, Any]:
        """Whether something counts the steps modulo two or three."""
        if layout == "none" or not self.seldom():
            return {}
        return {"period": self.pick((2, 3)), "phase_input": layout == "scan" and self.pick((False, True))}

    def emission(self, parents: Sequence[Ref], **settings: Any) -> Draw:
        """A stream site of any law with the given parents."""
        law = self.pick(
            ("bernoulli", "categorical", "categorical", "binomial", "normal", "poisson", "geometric", "exponential")
        )
        size = self.pick((2, 3)) if law == "categorical" else 2
        zeros = law in ("bernoulli", "categorical") and self.seldom()
        return self.add(law, "stream", size=size, zeros=zeros, given=tuple(parents), **settings)


def static_latents(g: Grammar) -> Spec:
    """Finite latents drawn once, some of them in copies or depending on one another, and latents of a single step."""
    layout = g.pick(("plate", "scan", "plate", "scan", "none"))
    counting = g.phase(layout)
    statics: list[Draw] = []
    for _ in range(g.pick((1, 2, 3))):
        parents = [g.reference(draw) for draw in g.some(statics, 1)]
        copies = g.pick((0, 0, 0, 2))
        given = (*parents, *((Ref(COPY),) if copies and g.pick((False, True)) else ()))
        statics.append(g.finite(once=True, given=given, copies=copies, copying=g.pick(("plate", "batch"))))
    if g.seldom():
        g.finite("context", once=True, given=(g.reference(g.pick(statics)),))
    parents = [g.reference(draw) for draw in statics]
    if counting:
        parents.append(Ref(PHASE))
    if g.seldom():
        parents.append(Ref(g.finite("context", given=tuple(g.some(parents, 1))).name))
    for _ in range(g.pick((0, 0, 1, 2))):
        parents.append(Ref(g.finite(given=tuple(g.some(parents[-2:], 2))).name))
    return _with_streams(g, "static", layout, parents, counting)


def _with_streams(g: Grammar, family: str, layout: str, parents: list[Ref], counting: dict[str, Any]) -> Spec:
    earlier: list[Ref] = []
    for _ in range(g.pick((1, 1, 2))):
        given = (g.pick(parents), *g.some([*parents[:2], *earlier], 2))
        draw = g.emission(tuple(dict.fromkeys(given)))
        if draw.values and layout == "scan":
            back = g.some([Ref(draw.name, 1), Ref(draw.name, 2)], 1)
            own_start = bool(back) and draw.law != "binomial" and g.seldom()
            g.draws[-1] = draw = dataclasses.replace(draw, given=(*draw.given, *back), own_start=own_start)
        if draw.values:
            earlier.append(Ref(draw.name))
    return g.spec(family, layout, steps=(2, 3, 4, 3, 2, 1), **counting)


def chain(g: Grammar) -> Spec:
    """One or two finite chains in a scan, of first or second order, seen through stream sites that may feed back."""
    counting = g.phase("scan")
    beside = [Ref(g.finite(once=True).name)] if g.seldom() else []
    beside += [Ref(PHASE)] if counting else []
    names = [g.name() for _ in range(g.pick((1, 1, 1, 2)))]
    emits_first = g.pick((False, True))
    moves = [_move(g, name, names, beside) for name in names]
    once, g.draws = g.draws, []
    states = [Ref(name, 1 if emits_first else 0) for name in names]
    streams = []
    for _ in range(g.pick((1, 1, 2))):
        earlier = [Ref(each.name) for each in streams if each.values]
        draw = g.emission((g.pick(states), *g.some([*beside, *earlier], 2)))
        if draw.values and g.seldom():
            draw = dataclasses.replace(draw, given=(*draw.given, Ref(draw.name, 1)))
        streams.append(draw)
    if streams[0].values and g.seldom():
        moves[0] = dataclasses.replace(moves[0], given=(*moves[0].given, Ref(streams[0].name, 1)))
    each_step = [*streams, *moves] if emits_first else [*moves, *streams]
    # A row can be carried where nothing of the step itself, nor the count, picks it.
    carried = {draw.name for draw in each_step if all(ref.lag for ref in draw.given) and g.seldom()}
    each_step = [dataclasses.replace(draw, row_carried=draw.name in carried) for draw in each_step]
    g.draws = [*once, *each_step]
    return g.spec("chain", "scan", steps=(3, 4, 2, 5, 3, 4, 1), **counting)


def memory(g: Grammar) -> Spec:
    """A carry that never comes back to where it was, over few steps."""
    hidden = g.finite(given=()).name
    fading = g.add("leak", "computed", given=(Ref(hidden),)).name
    g.add("bernoulli", "stream", of=fading, form="logistic")
    return g.spec("memory", "scan", steps=(3, 4, 2, 5))


def _move(g: Grammar, name: str, names: list[str], beside: list[Ref]) -> Draw:
    """The state of a chain, given its own last ones and perhaps those of the other chain; adds its start."""
    law, size = g.pick((("bernoulli", 2), ("categorical", 2), ("categorical", 3)))
    kind, start = g.pick(("zero", "drawn", "own")), ""
    if kind == "drawn":
        static = [ref for ref in beside if ref.site != PHASE]
        start = g.add(law, once=True, size=size, given=tuple(g.some(static, 1))).name
    others = [Ref(each, 1) for each in names if each != name]
    given = (*(Ref(name, lag) for lag in ((1, 2) if g.seldom() else (1,))), *g.some(beside), *g.some(others, 1))
    numbers, zeros = g.name() if g.often() else "", g.seldom()
    return Draw(name, law, numbers=numbers, size=size, given=given, start=start, own_start=kind == "own", zeros=zeros)
