r"""Two random bits, then their parity, over and over, from an unknown phase: "random, random, xor".

    z_0 ~ the stationary law of five states: A (1/3), B0, B1, C0, C1 (1/6 each),
    A → B0 or B1, emitting the bit 0 or 1;    Ba → C(a xor b), emitting a fair bit b;    Cc → A, emitting c.

A is before the first bit, Ba after a first bit a, Cc before a parity bit c. The state of a step is the one after its bit.
Once the phase is known, the entropy of the next bit is 1, 1, 0 bits in turn, 2/3 on average; until then it depends on the
evidence: a bit that is not the parity of the two before rules a phase out, one that is proves nothing.

Primitives: **accumulation** of evidence on the phase, **transport** of it round the cycle. No single bit says anything: every
pair of neighbouring bits is uniform. Source: the RRXOR process of Shai et al. (2024).
"""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax.nn import one_hot
from numpyro.contrib.control_flow import scan

from ppl_tunnels.tunnel import wind_tunnel

# A, B0, B1, C0, C1; from each state, which follow and which bit is emitted on the way.
_STATIONARY = (1 / 3, 1 / 6, 1 / 6, 1 / 6, 1 / 6)
_EDGES = ((0, 1, 0), (0, 2, 1), (1, 3, 0), (1, 4, 1), (2, 4, 0), (2, 3, 1), (3, 0, 0), (4, 0, 1))


@wind_tunnel(
    stream="bit",
    primitives={"accumulation", "transport"},
    small=({"length": 4},),
    presets={"paper": {"length": 20}, "small": {"length": 20}},
)
def parity(length=20):
    """`length` bits; predicts the next bit."""
    origin, target, bit = (jnp.array(column) for column in zip(*_EDGES, strict=True))
    moves = jnp.zeros((5, 5)).at[origin, target].set(1.0)
    moves = moves / moves.sum(axis=1, keepdims=True)
    emitted = jnp.zeros((5, 5), int).at[origin, target].set(bit)

    def step(state, _):
        following = numpyro.sample("state", dist.Categorical(moves[state]))
        numpyro.sample("bit", dist.Categorical(one_hot(emitted[state, following], 2, dtype=float)))
        return following, None

    scan(step, numpyro.sample("start", dist.Categorical(jnp.array(_STATIONARY))), None, length=length)
