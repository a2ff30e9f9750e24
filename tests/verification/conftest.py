"""Shared by the tests of certification: tunnels that are compiled once, and a ladder that is measured once."""

import types
from pathlib import Path

import pytest

from ppl_tunnels import load_tunnel
from ppl_tunnels.registry import module_from_file
from ppl_tunnels.verification import certification
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


@pytest.fixture(scope="module")
def one_ladder():
    """Each tunnel's ladder measured once, on the first key that comes."""
    measured, ladder = {}, certification.ladder

    def remembered(tunnel, key, *, tolerance_bits):
        if (tunnel, tolerance_bits) not in measured:
            measured[tunnel, tolerance_bits] = ladder(tunnel, key, tolerance_bits=tolerance_bits)
        return measured[tunnel, tolerance_bits]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(certification, "ladder", remembered)
        yield measured
