"""A predictor as it is named on the command line: a trained model's folder, or a function in a file."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ppl_tunnels.errors import TunnelError, suggest
from ppl_tunnels.registry import load_tunnel, module_from_file

if TYPE_CHECKING:
    from ppl_tunnels.tunnel import WindTunnel


def load_predictor(name: str) -> "tuple[Any, WindTunnel | None]":
    """The predictor, and the tunnel it was trained in if it says so.

    Args:
        name: a folder that `fit` or `save_model` wrote, or "path/to/file.py:FUNCTION".

    Raises:
        TunnelError: there is no such folder, file or function.
    """
    import jax

    jax.config.update("jax_enable_x64", True)
    place, _, attribute = name.rpartition(":")
    if place.endswith(".py"):
        module = module_from_file(place)
        found = getattr(module, attribute, None)
        if not callable(found):
            functions = sorted(
                key for key, value in vars(module).items() if callable(value) and not key.startswith("_")
            )
            raise TunnelError(f"{place} defines no function {attribute!r}; {suggest(attribute, functions)}")
        return found, None
    if not Path(name).is_dir():
        raise TunnelError(
            f"there is no folder {name!r}; give the folder that 'ppl-tunnels train' wrote, or a function as path/to/file.py:FUNCTION"
        )
    from ppl_tunnels.models import load_model

    predictor = load_model(name)
    facts = getattr(predictor, "tunnel", None) or {}
    if "source" not in facts:
        return predictor, None
    tunnel = load_tunnel(facts["source"]).configure(**facts["configuration"])
    tunnel = tunnel.predicting(facts.get("predict", tunnel.predict))
    if tunnel.fingerprint != facts["fingerprint"]:
        raise TunnelError(
            f"the tunnel {facts['source']} has changed since the model in {name!r} was trained in it; restore it, or name a tunnel: "
            f"ppl-tunnels certify {name} TUNNEL"
        )
    return predictor, tunnel
