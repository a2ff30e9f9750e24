"""Settings as they are typed: `--set length=50 --set distinct=false`."""

import ast

from ppl_tunnels.errors import TunnelError


def parse_settings(given: list[str]) -> dict[str, object]:
    """`["length=50", "distinct=false"]` -> `{"length": 50, "distinct": False}`.

    Raises:
        TunnelError: an item is not name=value, or a name comes twice.

    Example:
        >>> parse_settings(["length=50", "distinct=false", "rates=(0.1, 0.9)", "mode=sticky"])
        {'length': 50, 'distinct': False, 'rates': (0.1, 0.9), 'mode': 'sticky'}
    """
    settings: dict[str, object] = {}
    for item in given:
        name, equals, text = item.partition("=")
        name = name.strip()
        if not equals or not name.isidentifier():
            raise TunnelError(f"--set was given {item!r}; expected NAME=VALUE, such as --set length=50")
        if name in settings:
            raise TunnelError(f"--set gives {name!r} twice; give it once")
        settings[name] = _value(text.strip())
    return settings


def _value(text: str) -> object:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
