r"""Recall by position: the twin of `recall` in which a query names where the pair stood instead of its key.

    c_i ~ Uniform{0, …, V-1},    i = 0 … N-1,                                  the contents,
    storing, t = 0 … N-1:        i_t = t,                                       v_t = c_t,
    querying, t = N … N+Q-1:     i_t ~ Uniform over the positions not asked for before,    v_t = c_{i_t}.

Everything else is as in `recall`: a reading slips to a uniform value with probability `noise`, predictions at queries count.
The position is written beside each value, so that sequences are as long as the twin's and just as informative; only that the
names of pairs are the same in every episode. A model can therefore answer by place alone, which in `recall` it cannot: the
two together tell **binding** by content from addressing by position.

Source: ours; the task it is the control of is that of arXiv 2512.22471.
"""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.contrib.control_flow import scan

from ppl_tunnels.distributions import UniformOver
from ppl_tunnels.tunnel import wind_tunnel
from ppl_tunnels.tunnels.recall import Store, askable, check_settings, querying_steps, readings


def _store(episodes, visible, *, pairs, **settings):
    position = episodes.stream["position"]
    named = type(episodes)(stream={"key": position, "value": episodes.stream["value"]}, context={})
    # Pair t is stored at t whatever an impossible episode says, which a mask may hide; no position is used up by storing.
    step = jnp.arange(position.shape[1])
    cell = jnp.where(step < pairs, step, position)
    return Store(named, visible, cell, pairs=pairs, keys=pairs, in_order=True, overwrite=True, **settings)


@wind_tunnel(
    stream=("position", "value"),
    primitives={"binding"},
    scored=querying_steps,
    closed_form={
        "position": lambda episodes, visible, **settings: _store(episodes, visible, **settings).key_law(),
        "value": lambda episodes, visible, **settings: _store(episodes, visible, **settings).value_law(),
    },
    small=(
        {"pairs": 2, "queries": 2, "values": 3},
        {"pairs": 3, "queries": 2, "values": 2, "noise": 0.3},
    ),
    presets={
        "paper": {"pairs": 64, "queries": 3, "values": 256},
        "small": {"pairs": 8, "queries": 4, "values": 16},
    },
)
def recall_by_position(pairs=16, queries=4, values=64, noise=0.0):
    """`pairs` values are stored in order, `queries` positions asked for; predicts the value stored at each."""
    check_settings(pairs, queries, pairs, values, noise, 0.0)
    with numpyro.plate("stored_pairs", pairs):
        content = numpyro.sample("content", dist.DiscreteUniform(0, values - 1))

    def exchange(asked, step):
        querying = step >= pairs
        own = jnp.arange(pairs) == step
        position = numpyro.sample("position", UniformOver(jnp.where(querying, askable(~own, asked), own)))
        numpyro.sample("value", UniformOver(readings(content, position, values, noise)))
        return asked.at[position].max(querying), None

    scan(exchange, jnp.zeros(pairs, bool), jnp.arange(pairs + queries))
