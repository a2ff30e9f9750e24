"""Hypothesis strategies: random small NumPyro programs, with which the derivation of oracles is fuzzed.

The programs are plain data (`random_programs.Spec`), so a failing one shrinks to a small one and is printed in full;
`random_programs.build` makes its wind tunnel.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from hypothesis import strategies as st

from ppl_tunnels.errors import suggest
from ppl_tunnels.verification import continuous_grammar, outside_grammar, program_grammar
from ppl_tunnels.verification.program_grammar import Choices, Grammar, Seeded
from ppl_tunnels.verification.random_programs import Spec

T = TypeVar("T")

# How often a family comes, and what is in it.
FAMILIES: dict[str, tuple[int, Callable[[Grammar], Spec]]] = {
    "static": (6, program_grammar.static_latents),
    "chain": (6, program_grammar.chain),
    "memory": (1, program_grammar.memory),
    "conjugate": (5, continuous_grammar.conjugate),
    "regression": (3, continuous_grammar.regression),
    "gaussian chain": (3, continuous_grammar.gaussian_chain),
    "local gaussian": (1, continuous_grammar.local_gaussian),
    "not conjugate": (1, outside_grammar.not_conjugate),
    "conjugate for some data": (1, outside_grammar.conjugate_for_some_data),
    "hidden choice": (1, outside_grammar.hidden_choice),
    "curved": (1, outside_grammar.curved),
    "wrong scale": (1, outside_grammar.wrong_scale),
    "unclosed": (1, outside_grammar.unclosed),
}
FINITE_FAMILIES = ("static", "chain", "memory")


class _Drawn:
    """Choices that Hypothesis draws, and shrinks towards the first option."""

    def __init__(self, draw: st.DrawFn):
        self.draw = draw

    def pick(self, options: Sequence[T]) -> T:
        return options[self.draw(st.integers(0, len(options) - 1))]


def random_spec(choices: Choices, families: Sequence[str] = tuple(FAMILIES)) -> Spec:
    """One random program of some families, each as often as its weight says.

    Raises:
        ValueError: there is no such family.
    """
    for family in families:
        if family not in FAMILIES:
            raise ValueError(f"{family!r} is no family of programs; {suggest(family, list(FAMILIES))}")
    weighted = [family for family in families for _ in range(FAMILIES[family][0])]
    return FAMILIES[choices.pick(weighted)][1](Grammar(choices))


def seeded_spec(seed: int | str, families: Sequence[str] = tuple(FAMILIES)) -> Spec:
    """The same program for the same seed, on any machine.

    Example:
        >>> seeded_spec(1) == seeded_spec(1)
        True
    """
    return random_spec(Seeded(seed), families)


@st.composite
def random_programs(draw: st.DrawFn, families: Sequence[str] = tuple(FAMILIES)) -> Spec:
    """Specs of random small programs; `random_programs.build` makes a `WindTunnel` of one.

    Args:
        draw: given by Hypothesis.
        families: some of `FAMILIES`; `FINITE_FAMILIES` have finite latents only.

    Example:
        >>> from hypothesis import given, settings
        >>> from ppl_tunnels.verification.random_programs import build
        >>> @settings(max_examples=1, database=None)
        ... @given(random_programs(families=("static",)))
        ... def it_runs(spec):
        ...     assert build(spec).length == spec.steps
        >>> it_runs()
    """
    return random_spec(_Drawn(draw), families)
