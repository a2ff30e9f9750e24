"""What a person sees of a tunnel: its sites, one episode with the oracle's prediction at each step, and its ladder."""

from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from ppl_tunnels.errors import TunnelError
from ppl_tunnels.keys import Purpose, stream_key
from ppl_tunnels.oracles.laws import Finite

if TYPE_CHECKING:
    from ppl_tunnels.episodes import Episodes
    from ppl_tunnels.tunnel import WindTunnel
    from ppl_tunnels.verification.ladder import Rung

# Values listed by name in a step's prediction; the others are summed up.
_MOST_LISTED = 5


def sites_table(tunnel: "WindTunnel") -> Table:
    """The program's sites, their roles and values."""
    table = Table(title="Sites", title_justify="left", box=None, pad_edge=False)
    for column in ("site", "role", "drawn", "values"):
        table.add_column(column)
    for name, site in tunnel.reading.sites.items():
        role = site.role + (", predicted" if name == tunnel.predict else "")
        count = "real numbers" if site.support_size is None else f"{site.support_size:,} values"
        if site.support_size is not None and site.support_size > 10**9:
            count = f"about 10^{len(str(site.support_size)) - 1} values"
        table.add_row(name, role, "every step" if site.per_step else "once an episode", count)
    return table


def episode_table(tunnel: "WindTunnel", episodes: "Episodes") -> Table:
    """The first episode, with what the oracle predicted at each step and the predictive entropy in bits."""
    law = tunnel.oracle().predictive(episodes)
    streams = tunnel.reading.named("stream")
    realised = episodes.stream if tunnel.predict in streams else episodes.latent
    table = Table(title="One episode", title_justify="left", box=None, pad_edge=False)
    table.add_column("step", justify="right")
    shown = (*streams, *(() if tunnel.predict in streams else (tunnel.predict,)))
    for name in shown:
        table.add_column(name, justify="right")
    table.add_column(
        f"oracle's law of {tunnel.predict}, before it is seen" if tunnel.predict in streams else "oracle's law"
    )
    table.add_column("bits", justify="right")
    said, bits = _laws_in_words(law), _entropies(law)
    for step in range(tunnel.length):
        cells = []
        for name in shown:
            of = realised if name == tunnel.predict else episodes.stream
            value = np.asarray(of[name])[0]
            cells.append(_value(value[step] if tunnel.reading.sites[name].per_step else value))
        style = "" if tunnel.scored[step] else "dim"
        table.add_row(str(step + 1), *cells, said[step], bits[step], style=style)
    return table


def why_table(tunnel: "WindTunnel") -> Group:
    """Which engine derives the tunnel's oracle, and why the others do not or need not."""
    from ppl_tunnels.oracles.derive import REMEDY, considered

    table = Table(title="Engines, in order of preference", title_justify="left", box=None, pad_edge=False)
    table.add_column("engine", no_wrap=True)
    table.add_column("for this program")
    reasons = considered(tunnel)
    chosen = next((name for name, reason in reasons.items() if reason is None), None)
    for name, reason in reasons.items():
        says = reason or ("applies: chosen" if name == chosen else "applies, too")
        table.add_row(name, Text(says), style="bold" if name == chosen else "")
    if chosen is None:
        return Group(table, Text("No engine derives this oracle. " + REMEDY))
    return Group(table, Text(tunnel.oracle().explain()))


def ladder_table(rungs: "tuple[Rung, ...]", tolerance_bits: float) -> Group:
    """Every reference agent's distance from Bayes, and whether the tunnel tells them apart."""
    title = "Reference agents: KL and entropy error in bits, TV the total variation"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("agent", no_wrap=True)
    for column in ("KL", "TV", "entropy error"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("what it does")
    for rung in rungs:
        table.add_row(
            rung.agent,
            f"{rung.kl_bits:.4f}",
            f"{rung.total_variation:.4f}",
            f"{rung.entropy_error_bits:.4f}",
            rung.description,
        )
    close = [rung for rung in rungs if rung.within_tolerance]
    if not close:
        verdict = f"All of them are farther than {tolerance_bits:g} bits from Bayes: this tunnel separates them."
    else:
        names = ", ".join(rung.agent for rung in close)
        verdict = f"Within {tolerance_bits:g} bits of Bayes: {names}."
        if any(rung.trivial for rung in close):
            verdict += " A trivial agent among them means that nothing is certified here at this tolerance."
    return Group(table, Text(verdict))


def show_tunnel(tunnel: "WindTunnel", console: Console, *, seed: int, tolerance_bits: float) -> None:
    """Print all of it."""
    from ppl_tunnels.verification.ladder import ladder

    first = (tunnel.program.__doc__ or "").strip().partition("\n")[0]
    settings = ", ".join(f"{name}={value}" for name, value in tunnel.settings)
    console.print(f"[bold]{tunnel.name}[/]({settings})")
    console.print(Text(first))
    if tunnel.primitives:
        console.print(f"demands: {', '.join(sorted(tunnel.primitives))}")
    console.print()
    console.print(sites_table(tunnel))
    console.print()
    console.print(Text(f"Step axis: {tunnel.reading.axis}, {tunnel.length} steps. {tunnel.oracle().explain()}"))
    console.print(Text(f"What varies between episodes: {tunnel.episode_bits.meaning}."))
    console.print()
    key = stream_key(seed, Purpose.SHOW)
    console.print(episode_table(tunnel, tunnel.sample(key, 1)))
    console.print()
    if tunnel.reading.sites[tunnel.predict].support is None:
        console.print(Text(f"No ladder: the reference agents are of finite sites, and {tunnel.predict!r} is not one."))
    else:
        console.print(ladder_table(ladder(tunnel, key, tolerance_bits=tolerance_bits), tolerance_bits))


def _value(value: np.ndarray) -> str:
    array = np.asarray(value)
    return f"{array.item():g}" if array.ndim == 0 else "(" + " ".join(f"{item:g}" for item in array.ravel()) + ")"


def _laws_in_words(law: Any) -> list[str]:
    """The law of each step of the first episode."""
    if isinstance(law, Finite):
        probs, values = law.to_numpy()[0], np.asarray(law.values)
        return [_law(row, values) for row in probs]
    mean, spread = np.asarray(law.mean)[0], np.sqrt(np.asarray(law.variance))[0]
    name = type(law).__name__
    return [f"{name} of mean {_value(m)} and standard deviation {_value(s)}" for m, s in zip(mean, spread, strict=True)]


def _entropies(law: Any) -> list[str]:
    from ppl_tunnels.verification.law_divergences import entropy_bits

    first = (
        jax.tree.map(lambda leaf: leaf[:1], law)
        if not isinstance(law, Finite)
        else Finite(law.log_probs[:1], law.values)
    )
    if np.asarray(first.impossible).any():
        return ["" if off else "?" for off in np.asarray(first.impossible)[0]]
    try:
        return [f"{bits + 0.0:.3f}" for bits in np.asarray(entropy_bits(first).value)[0]]
    except TunnelError:
        return ["no closed form"] * law.batch_shape[1]


def _law(probs: np.ndarray, values: np.ndarray) -> str:
    possible = np.flatnonzero(probs > 0)
    if len(possible) == 0:
        return "the evidence is impossible"
    if len(possible) > 2 and np.ptp(probs[possible]) < 1e-12:
        return f"the same for each of {len(possible)} values"
    order = np.argsort(-probs, kind="stable")[: min(_MOST_LISTED, len(possible))]
    listed = "  ".join(f"{_value(values[index])}: {probs[index]:.4f}" for index in order)
    rest = 1 - probs[order].sum()
    return listed + (f"  others: {rest:.4f}" if len(possible) > len(order) else "")
