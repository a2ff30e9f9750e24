"""Which outputs depend on which inputs, through jit, scan and indexing."""

import jax
import jax.numpy as jnp

from ppl_tunnels.oracles.dependence import dependence


def test_dependence_follows_jit_and_is_conservative_elsewhere() -> None:
    inner = jax.jit(lambda a, b: (a + 1.0, 2.0 * b))
    assert dependence(lambda a, b: inner(a, b), 1.0, 2.0) == [{0}, {1}]
    table = jnp.arange(3.0)
    assert dependence(lambda i, x: (table[i], jnp.where(x > 0, x, 0.0), jnp.zeros(2)), 1, 2.0) == [{0}, {1}, set()]

    def scanned(a, b):
        return jax.lax.scan(lambda carry, x: (carry + x, b), a, jnp.arange(3.0))

    total, stacked = dependence(scanned, 1.0, 2.0)
    assert total >= {0} and stacked >= {1}
