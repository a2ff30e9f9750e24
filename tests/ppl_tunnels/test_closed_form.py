"""The closed-form hook: what it covers, what it falls back on, and what it refuses."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from ppl_tunnels import wind_tunnel
from ppl_tunnels.errors import NoEngineError, TunnelError
from ppl_tunnels.oracles.closed_form import ClosedFormEngine
from ppl_tunnels.oracles.derive import derive


def laplace(episodes, visible, *, length):
    """Uniform bias on {0, 1/2, 1}, by weights (0, 1, 2)."""
    flips = episodes.stream["flip"]
    mask = jnp.tril(jnp.ones((length, length)), -1) if visible is None else visible * 1.0
    heads, tails = mask @ flips[..., None], mask @ (1 - flips[..., None])
    bias = jnp.array([0.0, 0.5, 1.0])
    weights = bias**heads * (1 - bias) ** tails
    head = (weights * bias).sum(-1) / weights.sum(-1)
    return jnp.log(jnp.stack([1 - head, head], axis=-1))


def program(length=3):
    index = numpyro.sample("bias", dist.Categorical(jnp.ones(3) / 3))
    with numpyro.plate("n", length):
        numpyro.sample("mark", dist.Bernoulli(0.25))
        numpyro.sample("flip", dist.Bernoulli(jnp.array([0.0, 0.5, 1.0])[index]))


def tunnel(closed_form, stream="flip", **roles):
    return wind_tunnel(stream=stream, closed_form=closed_form, name="three", **roles)(program)


FLIPS = np.array([[1, 0, 1], [1, 1, 1]])


def test_the_function_is_the_predictive_masks_included():
    """Would catch a mask that does not reach the function, or a configuration that does not."""
    form, visible = tunnel(laplace), np.array([[0, 0, 0], [0, 0, 0], [1, 0, 0]], bool)
    episodes = form.episodes(stream={"flip": FLIPS})
    enumerated = derive(form, engine="enumeration")
    for mask in (None, visible):
        law = form.oracle().predictive(episodes, visible=mask)
        np.testing.assert_allclose(law.to_numpy(), enumerated.predictive(episodes, visible=mask).to_numpy(), atol=1e-14)
    assert form.oracle().engine == "closed form" and "'flip'" in form.oracle().explain()


def test_evidence_by_the_chain_rule_and_posteriors_by_enumeration():
    """Would catch the evidence of one site passed off as that of the stream, and a posterior that is not given at all."""
    form = tunnel(laplace)
    episodes = form.episodes(stream={"flip": FLIPS})
    np.testing.assert_allclose(form.oracle().log_evidence(episodes), np.log([1 / 8 / 3, (1 / 8 + 1) / 3]), atol=1e-14)
    np.testing.assert_allclose(
        form.oracle().posterior(episodes, "bias").to_numpy()[1, -1], np.array([0, 1 / 8, 1]) / (9 / 8), atol=1e-14
    )


def test_the_evidence_of_a_site_without_a_form_comes_from_enumeration():
    """Would catch the marks left out of the evidence."""
    both = tunnel(laplace, stream=("mark", "flip"))
    episodes = both.episodes(stream={"mark": np.array([[1, 0, 0]] * 2), "flip": FLIPS})
    marks = np.log(0.25 * 0.75**2)
    expected = np.log([1 / 8 / 3, (1 / 8 + 1) / 3]) + marks
    np.testing.assert_allclose(both.oracle().log_evidence(episodes), expected, atol=1e-14)
    with pytest.raises(NoEngineError, match=r"covers 'flip', not 'mark'.*engine='enumeration'"):
        both.oracle().predictive(episodes, "mark")


def test_a_mapping_gives_each_site_its_form():
    """Would catch one site's law returned for another."""
    forms = {
        "flip": laplace,
        "mark": lambda episodes, visible, *, length: jnp.log(
            jnp.tile(jnp.array([0.75, 0.25]), (len(episodes), length, 1))
        ),
    }
    both = tunnel(forms, stream=("mark", "flip"))
    episodes = both.episodes(stream={"mark": FLIPS, "flip": FLIPS})
    assert both.oracle().predictive(episodes, "mark").to_numpy()[0, 0].tolist() == pytest.approx([0.75, 0.25])
    assert both.oracle().predictive(episodes).to_numpy()[0, 0].tolist() == pytest.approx([0.5, 0.5])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: tunnel({"bias": laplace}), ["'bias'", "not a stream site", "flip"]),
        (
            lambda: tunnel(lambda e, v, *, length: jnp.zeros((len(e), length))),
            ["'flip'", "float64", "(1, 3, 2)", "[episode, step, symbol]"],
        ),
        (
            lambda: tunnel(lambda e, v, *, length: jnp.zeros((len(e), length, 2), jnp.float32)),
            ["'flip'", "float32", "expected float64"],
        ),
    ],
)
def test_what_a_form_returns_is_checked(make, words):
    """Would catch rows broadcast over symbols, and a law in single precision."""
    with pytest.raises(TunnelError) as refusal:
        form = make()
        form.oracle().predictive(form.episodes(stream={"flip": FLIPS[:1]}))
    assert all(word in str(refusal.value) for word in words), str(refusal.value)


def test_when_it_does_not_apply_it_says_so():
    """Would catch the law of a stream site given for a predicted latent."""
    assert "supplies none" in ClosedFormEngine.from_tunnel(tunnel(None))
    assert "'bias' is latent" in ClosedFormEngine.from_tunnel(tunnel(laplace, predict="bias"))
