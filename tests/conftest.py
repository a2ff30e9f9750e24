"""Settings shared by all tests: double precision everywhere, quick compilation, and one Hypothesis profile."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import jax
import numpy as np
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


BY_HAND = [
    line
    for line in Path(__file__).with_name("by_hand.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests of `by_hand.txt` are slow ones."""
    for item in items:
        if item.nodeid.startswith(tuple(BY_HAND)):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True, scope="module")
def fast_compilation() -> Iterator[None]:
    """Leave out LLVM's expensive passes: many small programs are compiled once each. Models are trained with all of them."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture(scope="session")
def small_tunnels() -> dict:
    """Tunnels that brute force can referee; shared, because a sampler and an oracle are compiled once for each object."""
    from ppl_tunnels import load_tunnel

    return {name: load_tunnel(of).configure(**setting) for name, (of, setting) in SMALL_TUNNELS.items()}


@pytest.fixture(scope="module")
def remembered():
    """Certificates are made with each exact law computed once, and each ladder measured once, on the first key that comes."""
    from ppl_tunnels.oracles.oracle import Oracle
    from ppl_tunnels.verification import certification

    laws, ladders, predictive, ladder = {}, {}, Oracle.predictive, certification.ladder

    def one_law(self, episodes, site=None, visible=None):
        digest = hashlib.sha256()
        for leaf in jax.tree.leaves((episodes.without_latents(), visible)):
            digest.update(repr(leaf.shape).encode() + np.asarray(leaf).tobytes())
        asked = self.tunnel, site, digest.digest()
        if asked not in laws:
            laws[asked] = predictive(self, episodes, site, visible)
        return laws[asked]

    def one_ladder(tunnel, key, *, tolerance_bits):
        if (tunnel, tolerance_bits) not in ladders:
            ladders[tunnel, tolerance_bits] = ladder(tunnel, key, tolerance_bits=tolerance_bits)
        return ladders[tunnel, tolerance_bits]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Oracle, "predictive", one_law)
        patch.setattr(certification, "ladder", one_ladder)
        yield


@pytest.fixture(params=[0, 1])
def seed(request: pytest.FixtureRequest) -> int:
    """A seed that shows in the test's id."""
    return request.param
