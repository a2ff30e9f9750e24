"""Programs that run backward are refused, and so are laws that are none."""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.control_flow import scan

from ppl_tunnels import wind_tunnel
from ppl_tunnels.errors import TunnelError
from ppl_tunnels.oracles.causality import check_program_runs_forward

FAIR = dist.Bernoulli(0.5)


def plate_of(law_of_y, length=4):
    with numpyro.plate("n", length):
        x = numpyro.sample("x", FAIR)
        numpyro.sample("y", dist.Bernoulli(law_of_y(x)))


def static_after_stream():
    plate_of(lambda x: 0.5)
    x = numpyro.sample("z", dist.Bernoulli(0.5))
    with numpyro.plate("n", 4):
        later = numpyro.sample("w", dist.Bernoulli(0.2 + 0.5 * x))
    numpyro.sample("verdict", dist.Bernoulli(0.1 + 0.2 * later.sum()))


def downstream():
    def step(last, _):
        gear = numpyro.sample("gear", dist.Bernoulli(0.2 + 0.6 * last))
        x = numpyro.sample("x", dist.Bernoulli(0.1 + 0.7 * gear))
        return x, None

    scan(step, 0, None, length=3)


def context_from_stream():
    def step(last, _):
        numpyro.sample("c", dist.Bernoulli(0.2 + 0.6 * last))
        return numpyro.sample("x", FAIR), None

    scan(step, 0, None, length=3)


def context_first(length=3):
    with numpyro.plate("n", length):
        c = numpyro.sample("c", FAIR)
        numpyro.sample("x", dist.Bernoulli(0.2 + 0.6 * jnp.roll(c, -1)))


def lawless():
    def step(heads, _):
        return heads + numpyro.sample("x", dist.Bernoulli(0.6 + 0.3 * heads)), None

    scan(step, 0, None, length=4)


@pytest.mark.parametrize(
    "program",
    [
        lambda: plate_of(lambda x: 0.2 + 0.1 * jnp.cumsum(x)),
        lambda: plate_of(lambda x: 0.2 + 0.6 * jnp.concatenate([jnp.zeros(1), x[:-1]])),
    ],
)
def test_forward_programs_pass(program):
    """Would catch a check that refuses a plate whose steps use their own or earlier values."""
    check_program_runs_forward(wind_tunnel(stream=("x", "y"), name="forward")(program))


def test_context_of_later_steps_may_be_used():
    """Would catch context, which is revealed up front, treated as something that comes later."""
    check_program_runs_forward(wind_tunnel(stream="x", context="c")(context_first))


@pytest.mark.parametrize(
    ("program", "roles", "words"),
    [
        (lambda: plate_of(lambda x: 0.2 + 0.6 * x[::-1]), {"stream": ("x", "y")}, ["'y' at step 0", "reversed"]),
        (
            lambda: plate_of(lambda x: 0.2 + 0.6 * jnp.concatenate([x[1:], jnp.zeros(1)])),
            {"stream": ("x", "y")},
            ["'y' at step 0", "step 1 or later", "shifted"],
        ),
        (
            lambda: plate_of(lambda x: 0.1 + x.mean() / 2),
            {"stream": ("x", "y")},
            ["'y' at step 0", "mean over the plate"],
        ),
        (
            lambda: plate_of(lambda x: jnp.where(jnp.arange(4) == 2, 0.2 + 0.6 * x[3], 0.5)),
            {"stream": ("x", "y")},
            ["'y' at step 2", "step 3 or later"],
        ),
        (static_after_stream, {"stream": ("x", "w"), "predict": "x"}, ["'verdict'", "drawn once", "before the stream"]),
        (downstream, {"stream": "x", "predict": "gear"}, ["'gear'", "downstream", "does not feed into"]),
        (context_from_stream, {"stream": "x", "context": "c"}, ["'c'", "up front", "a stream site"]),
        (lawless, {"stream": "x"}, ["'x'", "undefined at step", "out of range"]),
    ],
)
def test_backward_and_lawless_programs_are_refused(program, roles, words):
    """Would catch a program that sees the future: its 'predictive' would condition on the answer."""
    tunnel = wind_tunnel(**roles, name="wrong")(program)
    with pytest.raises(TunnelError) as refusal:
        check_program_runs_forward(tunnel)
    assert all(word in str(refusal.value) for word in words), str(refusal.value)


def test_a_stream_fed_latent_is_fine_where_it_is_not_predicted():
    """Would catch a refusal that goes further than it must."""
    check_program_runs_forward(wind_tunnel(stream="x")(downstream))
