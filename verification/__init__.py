"""Certifying predictors and testing oracles: divergences, bounds, reference agents, properties, certificates, reports.

Imported as `ppl_tunnels.verification`. Nothing is loaded until a name is used.
"""

if __name__ != "ppl_tunnels.verification":
    raise ImportError(
        f"this folder is the package ppl_tunnels.verification, but it was imported as {__name__!r}; write "
        "'import ppl_tunnels.verification' (and keep the repository's root off sys.path if you have a package of that name)"
    )

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ppl_tunnels.verification.certificate import Certificate as Certificate
    from ppl_tunnels.verification.certificate import load_certificate as load_certificate
    from ppl_tunnels.verification.certification import certify as certify
    from ppl_tunnels.verification.properties import check_oracle as check_oracle
    from ppl_tunnels.verification.reference_agents import reference_agents as reference_agents
    from ppl_tunnels.verification.report import write_html as write_html

_HOMES = {
    "Certificate": "certificate",
    "certify": "certification",
    "load_certificate": "certificate",
    "check_oracle": "properties",
    "reference_agents": "reference_agents",
    "write_html": "report",
}
__all__ = ["Certificate", "certify", "check_oracle", "load_certificate", "reference_agents", "write_html"]


def __getattr__(name: str):
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; its public names are {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
