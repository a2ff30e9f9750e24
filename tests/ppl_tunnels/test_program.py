"""Running a program with chosen values, step axis first."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import handlers

from ppl_tunnels import load_tunnel
from ppl_tunnels.errors import TunnelError
from ppl_tunnels.program import (
    compile_time,
    double_precision,
    from_layout,
    log_probs_given,
    require_x64,
    to_layout,
    trace_program,
)

PROGRAMS = Path(__file__).with_name("programs.py")


def test_layouts_put_the_step_first_and_come_back():
    """Would catch the axis of another plate taken for the step's."""
    panel = load_tunnel(f"{PROGRAMS}:panel").configure(length=5)
    sites = panel.reading.sites
    pixels = jnp.arange(10).reshape(2, 5)  # the program's own shape: rows, then time
    assert sites["pixels"].layout == (5, 2)
    assert to_layout(pixels, sites["pixels"]).tolist() == pixels.T.tolist()
    assert from_layout(pixels.T, sites["pixels"]).tolist() == pixels.tolist()
    assert sites["kind"].layout == (2,) and from_layout(jnp.arange(2), sites["kind"]).tolist() == [0, 1]


def test_a_program_without_a_step_axis_has_one_step():
    """Would catch a missing axis in programs of one step."""
    sites = load_tunnel(f"{PROGRAMS}:sprinkler").reading.sites
    assert sites["wet"].layout == (1,) and sites["cloudy"].layout == ()
    assert to_layout(jnp.array(1), sites["wet"]).shape == (1,)
    assert from_layout(jnp.array([1]), sites["wet"]).shape == ()


@pytest.mark.parametrize("name", ["casino", "panel", "survey"])
def test_factors_add_up_to_numpyros_own_joint_density(name):
    """Would catch a factor dropped, counted twice or summed over the wrong axes."""
    tunnel = load_tunnel(f"{PROGRAMS}:{name}")
    sites = tunnel.reading.sites
    draw = jax.tree.map(lambda leaf: leaf[0], tunnel.probe)
    values = {**draw.context, **draw.stream, **draw.latent}
    factors = log_probs_given(tunnel.configured_program, sites, values)
    own = {site: from_layout(jnp.asarray(value), sites[site]) for site, value in values.items()}
    seeded = handlers.seed(tunnel.configured_program, jax.random.key(0))
    trace = handlers.trace(handlers.substitute(seeded, data=own)).get_trace()
    for site, value in own.items():
        expected = np.sum(trace[site]["fn"].log_prob(value))
        assert float(jnp.sum(factors[site])) == pytest.approx(float(expected), abs=1e-12), site
        assert factors[site].shape == ((tunnel.length,) if sites[site].per_step else ())


def test_double_precision_whatever_the_caller_does():
    """Would catch a mode that leaks out of the context, or does not get in."""
    with jax.enable_x64(False):
        with double_precision():
            assert jnp.zeros(()).dtype == jnp.float64
        assert jnp.zeros(()).dtype == jnp.float32


def test_compile_time_values_are_concrete_inside_a_jit():
    """Would catch a program read with abstract values when its first use is inside somebody's jit."""

    @jax.jit
    def somebody(x):
        with compile_time():
            assert int(jnp.ones(3).sum()) == 3
        return x

    somebody(jnp.zeros(2))


def test_a_single_precision_jit_is_refused():
    """Would catch modes mixed in one trace, by traced arguments and by captured concrete ones alike."""
    concrete = jnp.zeros(2)
    with jax.enable_x64(False):
        for function in (lambda x: require_x64("it", x), lambda _: require_x64("it", concrete)):
            with pytest.raises(
                TunnelError, match="it was called inside a jit that runs in single precision.*enable_x64"
            ):
                jax.jit(function)(jnp.zeros(2))
        require_x64("it", concrete)  # eagerly there is nothing to refuse
    jax.jit(lambda x: require_x64("it", x))(concrete)


def test_a_python_decision_on_a_drawn_value_is_refused():
    """Would catch JAX's own error, which does not say what to do about it."""
    tunnel = load_tunnel(f"{PROGRAMS}:casino")

    def program():
        values = tunnel.program(length=2)
        raise AssertionError(values)

    def branching():
        import numpyro
        import numpyro.distributions as dist

        if numpyro.sample("z", dist.Bernoulli(0.5)) > 0:
            program()

    with pytest.raises(TunnelError, match=r"Python decision.*jnp.where"):
        jax.vmap(lambda key: trace_program(branching, {}, key)["z"]["value"])(jax.random.split(jax.random.key(0), 2))
