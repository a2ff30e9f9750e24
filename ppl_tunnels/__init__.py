"""Wind tunnels as NumPyro programs, the exact oracles derived from them, and certificates for models.

`import ppl_tunnels` is cheap: nothing below is loaded, and no JAX array exists, until a name is used.

Example:
    >>> import ppl_tunnels
    >>> ppl_tunnels.load_tunnel("coin").name
    'coin'
"""

import importlib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ppl_tunnels.discretising import discretise as discretise
    from ppl_tunnels.episodes import Episodes as Episodes
    from ppl_tunnels.oracles.oracle import Oracle as Oracle
    from ppl_tunnels.registry import load_tunnel as load_tunnel
    from ppl_tunnels.registry import tunnel_names as tunnel_names
    from ppl_tunnels.tunnel import WindTunnel as WindTunnel
    from ppl_tunnels.tunnel import wind_tunnel as wind_tunnel

__version__ = "0.1.0"

_HOMES = {
    "Episodes": "ppl_tunnels.episodes",
    "Oracle": "ppl_tunnels.oracles.oracle",
    "WindTunnel": "ppl_tunnels.tunnel",
    "discretise": "ppl_tunnels.discretising",
    "load_tunnel": "ppl_tunnels.registry",
    "tunnel_names": "ppl_tunnels.registry",
    "wind_tunnel": "ppl_tunnels.tunnel",
}
__all__ = ["Episodes", "Oracle", "WindTunnel", "discretise", "load_tunnel", "tunnel_names", "wind_tunnel"]

# In a source checkout `models/` and `verification/` are siblings of this folder; an installed wheel has them inside it.
_checkout = Path(__file__).resolve().parent.parent
if (_checkout / "pyproject.toml").is_file() and (_checkout / "verification" / "certificate.py").is_file():
    __path__.append(str(_checkout))


def __getattr__(name: str):
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'ppl_tunnels' has no attribute {name!r}; its public names are {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
