"""Configurations of a tunnel small enough for brute force to referee."""

import itertools
from collections.abc import Iterator

from ppl_tunnels.errors import TunnelError
from ppl_tunnels.oracles.support import JointSupport
from ppl_tunnels.tunnel import WindTunnel
from ppl_tunnels.verification.referee import can_referee

# Joint values of the latents; each is run through the program for every step and symbol.
MOST_HYPOTHESES = 2_000
_MOST_STEPS = 8
# Where latents are continuous, their grid is gone through for every step.
_MOST_GRID_STEPS = 6


def small_configurations(tunnel: WindTunnel) -> tuple[WindTunnel, ...]:
    """The configurations that a tunnel names; else itself if it is small, else the first found by shrinking integers.

    Raises:
        TunnelError: a configuration that it names is not small.

    Example:
        >>> import ppl_tunnels
        >>> [small.configuration["size"] for small in small_configurations(ppl_tunnels.load_tunnel("bijection"))]
        [4, 3]
    """
    if tunnel.small:
        named = [tunnel.configure(**settings) for settings in tunnel.small]
        for at in named:
            if not _is_small(at):
                raise TunnelError(
                    f"small={at.configuration} of {tunnel.name!r} is not small: at most {MOST_HYPOTHESES} hypotheses"
                )
        return tuple(named)
    if _is_small(tunnel):
        return (tunnel,)
    return tuple(itertools.islice((at for at in _shrunken(tunnel) if _is_small(at)), 1))


def _shrunken(tunnel: WindTunnel) -> Iterator[WindTunnel]:
    integers = {
        name: value for name, value in tunnel.settings if isinstance(value, int) and not isinstance(value, bool)
    }
    before = dict(tunnel.settings)
    for most in (6, 5, 4, 3, 2):
        smaller = {name: min(value, most) for name, value in integers.items()}
        if smaller != {name: before[name] for name in smaller}:
            yield tunnel.configure(**smaller)
        before |= smaller


def _is_small(tunnel: WindTunnel) -> bool:
    try:
        reading = tunnel.reading
    except (ValueError, TypeError, IndexError):
        return False  # shrinking can leave what the program accepts
    latents = {name: reading.sites[name] for name in reading.named("latent")}
    if any(site.support is None for site in latents.values()):
        return 1 <= reading.steps <= _MOST_GRID_STEPS and can_referee(tunnel)
    return JointSupport(latents).size <= MOST_HYPOTHESES and 1 <= reading.steps <= _MOST_STEPS
