"""Shared by the tests of certification: tunnels, which are compiled once for each object."""

import types
from pathlib import Path

import pytest

from ppl_tunnels import load_tunnel
from ppl_tunnels.registry import module_from_file
from ppl_tunnels.verification.properties import Finding


@pytest.fixture(scope="session")
def programs() -> types.ModuleType:
    return module_from_file(str(Path(__file__).with_name("programs.py")))


@pytest.fixture(scope="session")
def coin():
    return load_tunnel("coin")


@pytest.fixture(scope="session")
def bijection():
    return load_tunnel("bijection")


@pytest.fixture(scope="session")
def checked() -> tuple[Finding, ...]:
    """For `certify(oracle_findings=)` where the oracle's own check is not what is tested."""
    return (Finding("agreement", True, 0.0, 1, "checked elsewhere"),)
