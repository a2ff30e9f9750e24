r"""A third opinion: the whole joint table of a tiny program, conditioned by adding up its cells.

With z the latents and x the stream, every cell p(z, x | c) is one run of the program, and

    p(x_t = v | x_<t, c) = sum of the cells that agree with x_<t and x_t = v / sum of the cells that agree with x_<t.

It assumes nothing about which factor belongs to which step: no likelihood, no prior, no order of evaluation. So it settles
what a posterior predictive is wherever both the latents and the stream are small; it knows no masks.
"""

import math
from typing import TYPE_CHECKING

import numpy as np

from ppl_tunnels.errors import TunnelError
from ppl_tunnels.oracles.bruteforce import Referee

if TYPE_CHECKING:
    from ppl_tunnels.episodes import Episodes
    from ppl_tunnels.tunnel import WindTunnel

# A cell takes about 0.1 ms.
MOST_CELLS = 50_000


def joint_table_predictive(tunnel: "WindTunnel", episodes: "Episodes", site: str | None = None) -> np.ndarray:
    """The law of a stream site given context, earlier steps and earlier sites of its own step.

    Args:
        tunnel: whose latents and stream together have at most `MOST_CELLS` joint values.
        episodes: what happened; latents are ignored.
        site: a stream site; the predicted one by default.

    Returns:
        Probabilities, float64 `[episode, step, symbol]`; rows of zeros where the evidence is impossible.

    Raises:
        TunnelError: too many cells, or a site that is not finite or, the one asked for, not of the stream.

    Example:
        >>> import numpy as np, ppl_tunnels
        >>> coin = ppl_tunnels.load_tunnel("coin").configure(length=2, points=3)
        >>> joint_table_predictive(coin, coin.episodes(stream={"flip": np.array([[1, 0]])}))[0, 1].round(4).tolist()
        [0.1667, 0.8333]
    """
    site = tunnel.predict if site is None else site
    streams = tunnel.reading.named("stream")
    if site not in streams:
        raise TunnelError(f"site {site!r} is not a stream site; the joint table predicts one of {', '.join(streams)}")
    axes = _axes(tunnel)
    at = [place for place, (name, _) in enumerate(axes) if name == site]
    out = np.zeros((len(episodes), tunnel.length, len(tunnel.reading.sites[site].support)))
    episodes = episodes.to_numpy()
    tables: dict[tuple[bytes, ...], np.ndarray] = {}
    for episode in range(len(episodes)):
        context = {name: value[episode] for name, value in episodes.context.items()}
        key = tuple(value.tobytes() for value in context.values())
        table = tables[key] if key in tables else tables.setdefault(key, _table(tunnel, context))
        seen = [_index(tunnel, name, episodes.stream[name][episode][place]) for name, place in axes]
        for step, place in enumerate(at):
            cells = table[tuple(seen[:place])]
            mass = cells.reshape(cells.shape[0], -1).sum(axis=1)
            out[episode, step] = mass / mass.sum() if mass.sum() > 0 else 0.0
    return out


def _axes(tunnel: "WindTunnel") -> list[tuple[str, tuple[int, ...]]]:
    """Every draw of the stream in the order in which it is revealed: (site, place in its batch, step first)."""
    sites = tunnel.reading.sites
    return [
        (name, (step, *rest))
        for step in range(tunnel.length)
        for name in tunnel.reading.named("stream")
        for rest in np.ndindex(*sites[name].batch_shape[1:])
    ]


def _index(tunnel: "WindTunnel", name: str, value: np.ndarray) -> int:
    support = tunnel.reading.sites[name].support
    return int(np.argmax((support == value).reshape(len(support), -1).all(axis=1)))


def _table(tunnel: "WindTunnel", context: dict[str, np.ndarray]) -> np.ndarray:
    """p(x, c) for every x, one axis for every draw of the stream, in the order in which it is revealed."""
    referee, axes, sites = Referee(tunnel, None), _axes(tunnel), tunnel.reading.sites
    for name in tunnel.reading.named("stream"):
        if sites[name].support is None:
            raise TunnelError(
                f"stream site {name!r} is not finite ({sites[name].constraint}); the joint table lists values"
            )
    shape = tuple(len(sites[name].support) for name, _ in axes)
    if referee.count * math.prod(shape) > MOST_CELLS:
        raise TunnelError(
            f"{tunnel.name!r} has {referee.count * math.prod(shape):,} joint values of latents and stream; the joint table holds "
            f"at most {MOST_CELLS:,}: use a smaller configuration"
        )
    table = np.zeros(shape)
    for cell in np.ndindex(*shape):
        stream = {name: np.zeros(sites[name].layout, sites[name].dtype) for name in tunnel.reading.named("stream")}
        for (name, place), symbol in zip(axes, cell, strict=True):
            stream[name][place] = sites[name].support[symbol]
        runs = (referee.factors({**values, **context, **stream}) for values, _ in referee.hypotheses())
        table[cell] = math.fsum(referee.weight(factors, tunnel.length - 1) for factors in runs)
    return table
