"""The built-in tunnels are tested as users run them."""

import pytest


@pytest.fixture(autouse=True, scope="module")
def fast_compilation() -> None:
    """Nothing is left out here (see the folder above)."""
