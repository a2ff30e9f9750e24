"""Which outputs depend on which inputs, through jit, branches, loops and indexing."""

import jax
import jax.numpy as jnp

from ppl_tunnels.oracles.dependence import dependence


def test_calls_are_followed() -> None:
    """Would catch a `jit` or a function with its own derivative that ties all its results to all its arguments."""
    inner = jax.jit(lambda a, b: (a + 1.0, 2.0 * b))
    assert dependence(lambda a, b: inner(a, b), 1.0, 2.0) == [{0}, {1}]
    table = jnp.arange(3.0)
    assert dependence(lambda i, x: (table[i], jnp.where(x > 0, x, 0.0), jnp.zeros(2)), 1, 2.0) == [{0}, {1}, set()]

    @jax.custom_jvp
    def both(a, b):
        return a, b

    both.defjvp(lambda primals, tangents: (both(*primals), both(*tangents)))
    assert dependence(both, 1.0, 2.0) == [{0}, {1}]
    assert dependence(jax.checkpoint(lambda a, b: (jnp.sin(b), a)), 1.0, 2.0) == [{1}, {0}]


def test_branches_are_followed_and_depend_on_the_choice() -> None:
    """Would catch a memory that seems to depend on the state because one branch of a `cond` returns both."""

    def chosen(phase, state, memory):
        return jax.lax.cond(phase > 0, lambda s, m: (s, m + 1.0), lambda s, m: (2.0 * s, m), state, memory)

    assert dependence(chosen, 1, 2.0, 3.0) == [{0, 1}, {0, 2}]

    def crossed(phase, state, memory):
        return jax.lax.cond(phase > 0, lambda s, m: (s, m), lambda s, m: (m, s), state, memory)

    assert dependence(crossed, 1, 2.0, 3.0) == [{0, 1, 2}, {0, 1, 2}]


def test_loops_are_followed_until_nothing_new_depends() -> None:
    """Would catch a loop whose carry takes several rounds to reach another, and a bound that is forgotten."""

    def scanned(a, b):
        return jax.lax.scan(lambda carry, x: (carry + x, b), a, jnp.arange(3.0))

    assert dependence(scanned, 1.0, 2.0) == [{0}, {1}]

    def shifted(a, b, c, apart):
        return jax.lax.scan(
            lambda carry, _: ((carry[1], carry[2], carry[2], carry[3]), None), (a, b, c, apart), None, 3
        )

    assert dependence(lambda *x: shifted(*x)[0], 1.0, 2.0, 3.0, 4.0) == [{0, 1, 2}, {1, 2}, {2}, {3}]

    def repeated(times, a, b):
        return jax.lax.fori_loop(0, times, lambda _, carry: (carry[0] + 1.0, carry[1] * a), (a, b))

    assert dependence(repeated, 2, 1.0, 2.0) == [{0, 1}, {0, 1, 2}]


def test_an_unknown_operation_ties_everything_together() -> None:
    """Would catch an operation with several results that is taken apart without being understood."""
    assert dependence(lambda a, b: jax.lax.sort((a, b), num_keys=1), jnp.zeros(3), jnp.zeros(3)) == [{0, 1}, {0, 1}]
