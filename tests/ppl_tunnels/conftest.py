"""Settings of these tests: many small programs are compiled once each, so compiling fast matters and running fast does not."""

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture(autouse=True, scope="module")
def fast_compilation() -> Iterator[None]:
    """Leave out LLVM's expensive passes; what is trained and certified in other folders runs with all optimisations."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)
