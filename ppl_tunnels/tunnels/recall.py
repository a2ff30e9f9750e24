r"""Associative recall: pairs are stored, then some of the keys are asked for.

    c_i ~ Uniform{0, …, V-1},    i = 1 … N,                                   the contents, one a pair,
    storing, t = 1 … N:       k_t ~ Uniform over the keys not stored before,   v_t = c_t,
    querying, t = N+1 … N+Q:  k_t ~ Uniform over the stored keys not asked for before,
                              v_t = c_i, where pair i is the last one stored under k_t.

The model sees k_1 v_1 … k_t and predicts v_t; the predictions at queries count. Primitive: **binding**. The answer lies where
the key last stood, which may be anywhere, and nothing else about the past helps: no statistic of it, no state of few values.

Variants, so that the entropy is not zero everywhere:

* `noise`: every reading v_t, when storing and when querying alike, is with this probability replaced by a uniform value
  (perhaps the same). What was stored is then uncertain, and the answers to queries are evidence about it, too.
* `unseen`: with this probability a query asks for a key that was never stored (uniform over those not asked for before). It
  reads a uniform value: log2 V bits.
* `overwrite`: keys are stored uniformly over all of them, so they may repeat, and the last pair counts.

No key is asked for twice while another would do; with `overwrite` there may be fewer stored keys than queries, and once all
have been asked for, they are asked for again.

Contents are latent and the memory, which key points to which pair, is an observed carry. So evidence can be hidden: an agent
that forgets step s has not read c_s, though it knows that whatever stood under k_s before is gone.

Source: "The Bayesian Geometry of Transformer Attention" (arXiv 2512.22471), associative recall, in its authors' code: N = 64
pairs of 256 keys and 256 values, distinct keys, Q = 3 distinct queries. There, values are drawn without replacement; here they
are independent, so that a value says nothing about others. As long as everything is visible the answers are the same.
"""

import math

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax.nn import one_hot
from numpyro.contrib.control_flow import scan

from ppl_tunnels.distributions import UniformOver
from ppl_tunnels.layouts import Layout
from ppl_tunnels.tunnel import wind_tunnel


def check_settings(pairs, queries, keys, values, noise, unseen, overwrite=False):
    """Refuse, in one sentence, settings that no episode could have."""
    if min(pairs, queries, keys, values) < 1:
        raise ValueError(
            f"pairs={pairs}, queries={queries}, keys={keys}, values={values}: expected at least one of each; raise the smallest"
        )
    for name, chance in (("noise", noise), ("unseen", unseen)):
        if not 0 <= chance <= 1:
            raise ValueError(f"{name}={chance} is no probability; give a number from 0 to 1")
    if pairs > keys and not overwrite:
        raise ValueError(f"pairs={pairs} need as many distinct keys, but keys={keys}; raise keys or lower pairs")
    if queries > pairs:
        raise ValueError(
            f"queries={queries} need as many stored pairs, but pairs={pairs}; raise pairs or lower queries"
        )
    if unseen and queries > keys - pairs:
        raise ValueError(
            f"unseen={unseen} needs a key that was never stored for each of queries={queries}, but keys={keys} leaves "
            f"{max(keys - pairs, 0)} beside pairs={pairs}; raise keys"
        )


def askable(known, asked):
    """Which keys a query may name, `[..., key]`: of the known ones those not asked for before, or all if none is left."""
    fresh = known & ~asked
    return jnp.where(fresh.any(axis=-1, keepdims=True), fresh, known)


class Store:
    """What an episode shows of a store of pairs that is then queried.

    Args:
        episodes: streams "key" and "value".
        visible: the mask of a closed form.
        cell: which cell each step writes or reads, `[episode, step]`, from 0 to keys-1.
        pairs: how many steps write; the other settings are the tunnel's, too.
        in_order: whether pair i is stored under key i, as by position.

    Attributes:
        asking: the probability of every key at every query, `[episode, query, key]`; earlier keys decide it, visible or not.
        wrong_key: whether the step's own key has none, `[episode, step]`.
        readings: which earlier steps read what a query reads, `[episode, query, step]`.
        impossible: whether the visible earlier steps cannot have happened, `[episode, step]`.
    """

    def __init__(
        self,
        episodes,
        visible,
        cell,
        *,
        pairs,
        queries,
        keys,
        values,
        noise,
        unseen=0.0,
        overwrite=False,
        in_order=False,
    ):
        self.key, self.value = episodes.stream["key"], episodes.stream["value"]
        self.pairs, self.keys, self.values, self.noise = pairs, keys, values, noise
        self.overwrite, self.in_order = overwrite, in_order
        earlier = jnp.tril(jnp.ones((pairs + queries,) * 2, bool), -1)
        self.visible = earlier if visible is None else visible
        known = _named(cell[:, :pairs], keys).any(axis=1, keepdims=True)
        self.asking = chances(known, _named_before(self.key[:, pairs:], keys), unseen)
        self.wrong_key = self._wrong_key(earlier)
        # The last pair that was written there, and queries of it; what was never written has nothing to be read again.
        same = cell[:, :, None] == cell[:, None, :]
        overwritten = (same[:, :pairs, :pairs] & earlier[:pairs, :pairs].T).any(axis=2)
        readable = jnp.concatenate([~overwritten, jnp.ones_like(same[:, pairs:, 0])], axis=1)[:, None]
        written = same[:, pairs:, :pairs].any(axis=2, keepdims=True)
        self.readings = same[:, pairs:] & readable & written & earlier[pairs:]
        self.impossible = _any_product("ts,es->et", self.visible, self.wrong_key)
        if noise == 0:
            differ = self.readings & (self.value[:, pairs:, None] != self.value[:, None, :])
            seen = self.visible[pairs:]
            contradiction = _any_product("qj,qs,ejs->eq", seen[:, pairs:], seen, differ)
            self.impossible = self.impossible.at[:, pairs:].max(contradiction)

    def _wrong_key(self, earlier):
        storing, asked = self.key[:, : self.pairs], self.key[:, self.pairs :]
        same = storing[:, :, None] == storing[:, None, :]
        repeated = (same & earlier[: self.pairs, : self.pairs]).any(axis=2) & (not self.overwrite)
        repeated |= (storing != jnp.arange(self.pairs)[None]) & self.in_order
        unasked = jnp.take_along_axis(self.asking, asked[..., None], axis=-1)[..., 0] == 0
        return jnp.concatenate([repeated, unasked], axis=1)

    def key_law(self):
        """Log-probabilities of the key, `[episode, step, key]`."""
        stored = _named_before(self.key[:, : self.pairs], self.keys)
        storing = UniformOver(~stored | self.overwrite).probs
        if self.in_order:
            storing = jnp.broadcast_to(one_hot(jnp.arange(self.pairs), self.keys, dtype=float)[None], storing.shape)
        log_probs = jnp.log(jnp.concatenate([storing, self.asking], axis=1))
        return jnp.where(self.impossible[..., None], -jnp.inf, log_probs)

    def value_law(self):
        """Log-probabilities of the value, `[episode, step, value]`: Bayes on the visible readings of what is read."""
        seen = (self.readings & self.visible[self.pairs :]).astype(float)
        counts = jnp.einsum("eqs,esv->eqv", seen, one_hot(self.value, self.values, dtype=float))
        other = self.noise / self.values  # the probability of each value but the one that is there
        # Posterior of what is there, in units of its largest; 0 to the power 0 is 1.
        weight = (other / (1 - self.noise + other)) ** (counts.max(axis=-1, keepdims=True) - counts)
        answers = jnp.log((1 - self.noise) * weight / weight.sum(axis=-1, keepdims=True) + other)
        new = jnp.full((len(answers), self.pairs, self.values), -math.log(self.values))
        log_probs = jnp.concatenate([new, answers], axis=1)
        return jnp.where((self.impossible | self.wrong_key)[..., None], -jnp.inf, log_probs)


def chances(known, asked, unseen):
    """The probability of every key at a query, `[..., key]`."""
    return (1 - unseen) * UniformOver(askable(known, asked)).probs + (
        unseen * UniformOver(askable(~known, asked)).probs if unseen else 0.0
    )


def _named(key, keys):
    return key[..., None] == jnp.arange(keys)


def _named_before(key, keys):
    """Whether an earlier step named each key, `[episode, step, key]`."""
    named = _named(key, keys)
    return (jnp.cumsum(named, axis=1, dtype=jnp.int32) - named) > 0


def _any_product(what, *facts):
    """Whether the facts hold together anywhere, by an einsum (the fastest way)."""
    return jnp.einsum(what, *(fact.astype(float) for fact in facts)) > 0


def _keys(episodes, visible, **settings):
    return Store(episodes, visible, episodes.stream["key"], **settings).key_law()


def _values(episodes, visible, **settings):
    return Store(episodes, visible, episodes.stream["key"], **settings).value_law()


def querying_steps(pairs, queries, **_):
    """Whether each step is a query."""
    return [step >= pairs for step in range(pairs + queries)]


def published(*, pairs, queries, **_):
    """Four tokens a pair, filler, then queries whose answers are read at a blank and never shown."""
    store = ("STORE {key} SEP {value}",) * pairs
    ask = ("FILL*32 QUERY {key} _!", *("FILL*16 QUERY {key} _!",) * (queries - 1))
    return Layout(steps=store + ask)


@wind_tunnel(
    stream=("key", "value"),
    primitives={"binding"},
    scored=querying_steps,
    closed_form={"key": _keys, "value": _values},
    small=(
        {"pairs": 2, "queries": 2, "keys": 3, "values": 3},
        {"pairs": 2, "queries": 2, "keys": 2, "values": 2, "noise": 0.3, "overwrite": True},
        {"pairs": 2, "queries": 1, "keys": 3, "values": 2, "unseen": 0.4, "overwrite": True},
    ),
    presets={
        "paper": {"pairs": 64, "queries": 3, "keys": 256, "values": 256},
        "small": {"pairs": 8, "queries": 4, "keys": 16, "values": 16},
    },
    layouts={"published": published},
)
def recall(pairs=16, queries=4, keys=64, values=64, noise=0.0, unseen=0.0, overwrite=False):
    """`pairs` pairs are stored, `queries` keys asked for; predicts the value stored under each."""
    check_settings(pairs, queries, keys, values, noise, unseen, overwrite)
    with numpyro.plate("stored_pairs", pairs):
        content = numpyro.sample("content", dist.DiscreteUniform(0, values - 1))

    def exchange(memory, step):
        # Of every key: which pair was stored last under it (-1: none), and whether it was asked for.
        place, asked = memory
        querying = step >= pairs
        known = place >= 0
        storable = jnp.ones(keys, bool) if overwrite else ~known
        key = numpyro.sample("key", UniformOver(jnp.where(querying, wanted(known, asked, unseen), storable)))
        place = jnp.where(querying, place, place.at[key].set(step))
        numpyro.sample("value", UniformOver(readings(content, place[key], values, noise)))
        return (place, asked.at[key].max(querying)), None

    scan(exchange, (jnp.full(keys, -1), jnp.zeros(keys, bool)), jnp.arange(pairs + queries))


def wanted(known, asked, unseen):
    """The keys that a query may name: known ones or, with probability `unseen`, others."""
    if not unseen:
        return askable(known, asked)
    stranger = numpyro.sample("stranger", dist.Bernoulli(unseen))
    return askable(known != (stranger == 1), asked)


def readings(content, place, values, noise):
    """The values that a reading of a place may give; any of them where nothing was written, or by a slip."""
    possible = (jnp.arange(values) == content[place]) | (place < 0)
    if noise:
        possible |= numpyro.sample("slip", dist.Bernoulli(noise)) == 1
    return possible
