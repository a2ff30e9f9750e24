r"""A random bijection, revealed pair by pair.

    f ~ Uniform over the permutations of {0, …, n-1},
    k_t | k_<t ~ Uniform over the keys not seen before   (`distinct`, the published format) or over all keys,
    v_t = f(k_t),    t = 1 … T.

The model sees k_1 v_1 … k_t and predicts v_t. Primitives: **accumulation** by elimination: values already seen are ruled
out for new keys, so the entropy after k distinct pairs is log2(n - k) bits, whatever they were. With repeated keys
(`distinct=False`) the entropy depends on the evidence, and the value of a key seen before has to be found by its content,
which is **binding** (declared for neither variant alone, since the default does not need it).

Source: "The Bayesian Geometry of Transformer Attention" (arXiv 2512.22471), section on the bijection tunnel: n = 20, T = 19.
"""

import jax.numpy as jnp
import numpyro
from jax.nn import one_hot
from numpyro.contrib.control_flow import scan

from ppl_tunnels.distributions import RandomPermutation, UniformOver
from ppl_tunnels.tunnel import wind_tunnel


def unused_keys(episodes, visible, *, size, length, distinct):
    """Log-probabilities of each key: uniform over the unused ones. Which are unused the program itself knows, mask or no."""
    evidence = _Evidence(episodes, visible, size, length)
    used = evidence.key_used_before & distinct
    log_probs = jnp.where(used, -jnp.inf, -jnp.log(size - used.sum(axis=-1, keepdims=True, dtype=jnp.float64)))
    return jnp.where(evidence.impossible(distinct)[..., None], -jnp.inf, log_probs)


def elimination(episodes, visible, *, size, length, distinct):
    """Log-probabilities of each value: known for a key visibly seen, otherwise uniform over the values not visibly taken."""
    evidence = _Evidence(episodes, visible, size, length)
    answers = jnp.einsum("ets,esv->etv", evidence.answering.astype(jnp.float64), evidence.value) > 0
    taken = jnp.einsum("ts,esv->etv", evidence.mask, evidence.value) > 0
    new = jnp.where(taken, -jnp.inf, -jnp.log(size - taken.sum(axis=-1, keepdims=True, dtype=jnp.float64)))
    known = answers.any(axis=-1, keepdims=True)
    log_probs = jnp.where(known, jnp.where(answers, 0.0, -jnp.inf), new)
    impossible = evidence.impossible(distinct) | (evidence.key_repeats & distinct)
    return jnp.where(impossible[..., None], -jnp.inf, log_probs)


class _Evidence:
    """What an episode shows before each step, pair by pair: cheaper than a table of keys and values at every step.

    Attributes:
        mask: which earlier steps are visible, float `[step, earlier step]`.
        value: one-hot, `[episode, step, value]`.
        answering: whether an earlier visible step showed the step's own key, `[episode, step, earlier step]`.
        conflict: whether two steps' pairs exclude each other, `[episode, step, step]`.
        key_used_before: whether the key came earlier, visibly or not, `[episode, step, key]`.
        key_repeats: whether the step's own key came earlier, `[episode, step]`.
    """

    def __init__(self, episodes, visible, size, length):
        key, value = episodes.stream["key"], episodes.stream["value"]
        earlier = jnp.tril(jnp.ones((length, length), bool), -1)
        seen = earlier if visible is None else visible
        self.mask = seen.astype(jnp.float64)
        self.value = one_hot(value, size, dtype=jnp.float64)
        same_key, same_value = (each[:, :, None] == each[:, None, :] for each in (key, value))
        self.answering = same_key & seen[None]
        self.conflict = same_key != same_value
        one_hot_key = one_hot(key, size, dtype=jnp.float64)
        self.key_used_before = (jnp.cumsum(one_hot_key, axis=1) - one_hot_key) > 0
        self.key_repeats = (same_key & earlier[None]).any(axis=2)

    def impossible(self, distinct):
        """Whether no bijection (or, for distinct keys, no order of keys) fits the visible evidence, `[episode, step]`."""
        contradiction = jnp.einsum("ts,tu,esu->et", self.mask, self.mask, self.conflict.astype(jnp.float64)) > 0
        repeat_seen = jnp.einsum("ts,es->et", self.mask, self.key_repeats.astype(jnp.float64)) > 0
        return contradiction | (repeat_seen & distinct)


@wind_tunnel(
    stream=("key", "value"),
    primitives={"accumulation"},
    closed_form={"key": unused_keys, "value": elimination},
    small=({"size": 4, "length": 3}, {"size": 3, "length": 4, "distinct": False}),
    presets={"paper": {"size": 20, "length": 19}, "small": {"size": 8, "length": 7}},
)
def bijection(size=20, length=19, distinct=True):
    """`size` symbols, `length` pairs, keys distinct or not; predicts the value."""
    if distinct and length > size:
        raise ValueError(f"length={length} pairs need as many distinct keys, but size={size}; use distinct=False")
    mapping = numpyro.sample("mapping", RandomPermutation(size))

    def reveal(unused, _):
        key = numpyro.sample("key", UniformOver(unused))
        numpyro.sample("value", UniformOver(jnp.arange(size) == mapping[key]))
        return (unused.at[key].set(False) if distinct else unused), None

    scan(reveal, jnp.ones(size, bool), None, length=length)
