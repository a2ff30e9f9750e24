"""Settings shared by all tests: double precision everywhere, and one Hypothesis profile."""

import hypothesis
import jax
import pytest

jax.config.update("jax_enable_x64", True)

# Compilation trips the default deadline; derandomised runs make a failure reproducible on any machine.
hypothesis.settings.register_profile("suite", deadline=None, derandomize=True, max_examples=30, print_blob=True)
hypothesis.settings.load_profile("suite")


@pytest.fixture(params=[0, 1])
def seed(request: pytest.FixtureRequest) -> int:
    """A seed that shows in the test's id."""
    return request.param
