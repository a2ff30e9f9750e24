"""Finding tunnels by name: the built-in ones, entry points of other packages, and files anywhere."""

import ast
import dataclasses
import hashlib
import importlib
import importlib.metadata
import importlib.util
import pkgutil
import sys
import types
from pathlib import Path
from typing import TYPE_CHECKING

from ppl_tunnels.errors import TunnelError, suggest

if TYPE_CHECKING:
    from ppl_tunnels.tunnel import WindTunnel

ENTRY_POINT_GROUP = "ppl_tunnels.tunnels"


def tunnel_names() -> dict[str, str]:
    """Every tunnel that can be loaded by name, and where it lives ("module:name").

    Example:
        >>> tunnel_names()["coin"]
        'ppl_tunnels.tunnels.coin:coin'
    """
    from ppl_tunnels import tunnels

    built_in = {
        module.name: f"{tunnels.__name__}.{module.name}:{module.name}"
        for module in pkgutil.iter_modules(tunnels.__path__)
    }
    outside = {entry.name: entry.value for entry in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)}
    return {**outside, **built_in}


def load_tunnel(name: str) -> "WindTunnel":
    """A tunnel by name, as "module:name", or from a file as "path/to/file.py:name".

    Raises:
        TunnelError: there is none; says what was looked for, and what there is.

    Example:
        >>> load_tunnel("bijection").configure(size=4, length=3).length
        3
    """
    place, _, attribute = name.rpartition(":")
    if not place and name.endswith(".py"):
        raise TunnelError(
            f"{name!r} names a file but no tunnel in it; write {name}:NAME, NAME being the program's name"
        )
    if not place:
        known = tunnel_names()
        if name not in known:
            raise TunnelError(
                f"there is no tunnel {name!r}; {suggest(name, sorted(known))}. A tunnel in a file is written path/to/file.py:NAME"
            )
        place, _, attribute = known[name].partition(":")
    module = module_from_file(place) if place.endswith(".py") else _module(place, name)
    tunnel = getattr(module, attribute, None)
    from ppl_tunnels.tunnel import WindTunnel

    if isinstance(tunnel, WindTunnel):
        return dataclasses.replace(tunnel, source=f"{place}:{attribute}")
    inside = sorted(key for key, value in vars(module).items() if isinstance(value, WindTunnel))
    if tunnel is None:
        raise TunnelError(f"{place} defines no tunnel {attribute!r}; {suggest(attribute, inside)}")
    raise TunnelError(
        f"{attribute!r} in {place} is a {type(tunnel).__name__}, not a tunnel; put @wind_tunnel(stream=…) above the program"
    )


def _module(place: str, name: str):
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        raise TunnelError(
            f"{name!r} names module {place!r}, which cannot be imported ({error}); a file is written path/to/file.py:NAME"
        ) from error


def module_from_file(place: str) -> types.ModuleType:
    """The module in a Python file, loaded once; a failure to run it is one sentence."""
    path = Path(place)
    if not path.is_file():
        raise TunnelError(f"there is no file {place!r}; give the path of the Python file that defines the tunnel")
    resolved = path.resolve()
    module_name = f"_tunnel_file_{hashlib.sha256(str(resolved).encode()).hexdigest()[:12]}"
    if module_name in sys.modules:
        return sys.modules[module_name]
    spec = importlib.util.spec_from_file_location(module_name, resolved)
    assert spec is not None and spec.loader is not None, place
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # so that the program's own source can be inspected
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[module_name]
        if isinstance(error, TunnelError) or not isinstance(error, Exception):
            raise
        raise TunnelError(f"{place} cannot be run: {type(error).__name__}: {error}") from error
    return module


def tunnel_summary(source: str) -> str:
    """The first line of the docstring of the file that defines a tunnel, read without running it."""
    spec = importlib.util.find_spec(source.partition(":")[0])
    if spec is None or spec.origin is None:
        return "(its module cannot be found)"
    docstring = ast.get_docstring(ast.parse(Path(spec.origin).read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n")[0].rstrip(".")
