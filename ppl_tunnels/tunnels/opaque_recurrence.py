r"""A program or noise in opaque symbols: the recurrence, its integers relabelled in every episode.

    π ~ Uniform over the permutations of {0, …, p-1}, revealed up front;
    n_t as x_t in `recurrence`,    x_t = π(n_t).

The model reads π, then the symbols. The exact law is that of `recurrence` with its values relabelled, so nothing is harder for
Bayes; but no model can learn the arithmetic of the symbols it sees: each has to be looked up first, which is **binding**, on
top of that and of the **accumulation** that `recurrence` demands.

Source: as for `recurrence`; there, header and sequence have symbols of their own, as they have here by default.
"""

import numpyro

from ppl_tunnels.distributions import RandomPermutation
from ppl_tunnels.tunnel import wind_tunnel
from ppl_tunnels.tunnels.recurrence import program_or_noise


@wind_tunnel(
    stream="symbol",
    context="relabelling",
    primitives={"accumulation", "binding"},
    small=({"modulus": 3, "length": 4},),
    presets={"paper": {"modulus": 17, "length": 16}, "small": {"modulus": 7, "length": 10}},
)
def opaque_recurrence(modulus=17, length=16, chance=0.5):
    """`length` relabelled symbols, of a recurrence modulo `modulus` or of noise; predicts the next symbol."""
    program_or_noise(modulus, length, chance, numpyro.sample("relabelling", RandomPermutation(modulus)))
