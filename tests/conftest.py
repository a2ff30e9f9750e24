"""Settings shared by all tests: double precision everywhere, and one Hypothesis profile."""

import hypothesis
import jax
import pytest

jax.config.update("jax_enable_x64", True)

# Compilation trips the default deadline; derandomised runs make a failure reproducible on any machine.
hypothesis.settings.register_profile("suite", deadline=None, derandomize=True, max_examples=30, print_blob=True)
hypothesis.settings.load_profile("suite")


SMALL_TUNNELS = {
    "coin": ("coin", {"length": 4, "points": 3}),
    "bijection": ("bijection", {"size": 4, "length": 3}),
    "bijection with repeated keys": ("bijection", {"size": 3, "length": 4, "distinct": False}),
}


@pytest.fixture(scope="session")
def small_tunnels() -> dict:
    """Tunnels that brute force can referee; shared, because a sampler and an oracle are compiled once for each object."""
    from ppl_tunnels import load_tunnel

    return {name: load_tunnel(of).configure(**setting) for name, (of, setting) in SMALL_TUNNELS.items()}


@pytest.fixture(params=[0, 1])
def seed(request: pytest.FixtureRequest) -> int:
    """A seed that shows in the test's id."""
    return request.param
