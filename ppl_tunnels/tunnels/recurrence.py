r"""A program or noise: a linear recurrence modulo a prime, or independent uniform symbols.

    m ~ Bernoulli(chance),    a, b ~ Uniform{0, …, p-1},    x_1 ~ Uniform{0, …, p-1},
    x_t = a x_{t-1} + b  (mod p)   if m = 1,    x_t ~ Uniform{0, …, p-1}   otherwise,    t = 2 … T.

The first three symbols say nothing about m unless two neighbours are equal. In general, after k ≥ 2 symbols the odds for a
program have grown by c p^(k-3), where c counts the pairs (a, b) that fit: p for k = 2, then 1 (or p again where x_1 = x_2, a
fixed point), or 0, once a symbol does not fit. So the law turns from uniform to nearly certain at the fourth symbol.

Primitives: **binding** of a symbol to its successor and **accumulation** of evidence for m; the arithmetic itself is none of
the three. Symbols are written as the integers that they are, which a model has to learn from scratch all the same;
`opaque_recurrence` relabels them in every episode.

Source: the experiments on programs and noise in the public code of the authors of arXiv 2512.22471: p = 17, sixteen symbols.
"""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax.nn import one_hot
from numpyro.contrib.control_flow import scan

from ppl_tunnels.tunnel import wind_tunnel


def program_or_noise(modulus, length, chance, written):
    """`length` symbols; integer n is written as `written[n]`, a permutation of 0 … modulus-1."""
    if modulus < 2 or any(modulus % divisor == 0 for divisor in range(2, int(modulus**0.5) + 1)):
        raise ValueError(f"modulus={modulus} was given; expected a prime number, such as 17")
    if not 0 <= chance <= 1:
        raise ValueError(f"chance={chance} was given; expected a probability, from 0 to 1")
    flat = jnp.full(modulus, 1 / modulus)
    program = numpyro.sample("program", dist.Bernoulli(chance))
    multiplier = numpyro.sample("multiplier", dist.Categorical(flat))
    shift = numpyro.sample("shift", dist.Categorical(flat))
    read = jnp.argsort(written)

    def step(previous, first):
        following = written[(multiplier * read[previous] + shift) % modulus]
        noise = first | (program == 0)
        law = jnp.where(noise, flat, one_hot(following, modulus, dtype=float))
        return numpyro.sample("symbol", dist.Categorical(law)), None

    scan(step, jnp.array(0), jnp.arange(length) == 0)


@wind_tunnel(
    stream="symbol",
    primitives={"accumulation", "binding"},
    small=({"modulus": 3, "length": 5},),
    presets={"paper": {"modulus": 17, "length": 16}, "small": {"modulus": 7, "length": 10}},
)
def recurrence(modulus=17, length=16, chance=0.5):
    """`length` symbols, of a recurrence modulo `modulus` or of noise; predicts the next symbol."""
    program_or_noise(modulus, length, chance, jnp.arange(modulus))
