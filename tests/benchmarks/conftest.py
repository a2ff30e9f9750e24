"""What is timed is compiled in full, as users' programs are."""

import pytest


@pytest.fixture(autouse=True, scope="module")
def fast_compilation() -> None:
    """Nothing is left out here."""
