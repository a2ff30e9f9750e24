"""What a person sees of a tunnel: its sites, one episode with the oracle's prediction at each step, and its ladder."""

from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from ppl_tunnels.errors import TunnelError
from ppl_tunnels.keys import Purpose, stream_key
from ppl_tunnels.oracles.laws import Finite

if TYPE_CHECKING:
    from ppl_tunnels.encoding import Encoding
    from ppl_tunnels.episodes import Episodes
    from ppl_tunnels.tunnel import WindTunnel
    from ppl_tunnels.verification.ladder import Rung

# At which the ladder says whether the tunnel separates its agents: the default of certificates, and a strict one.
_TOLERANCES = (0.01, 0.001)
# Episodes over which entropies by step are averaged.
_AVERAGED, _AVERAGED_DENSITIES = 2_048, 64
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
    """The first episode, with what the oracle predicted at each step, the predictive entropy, and its mean over them all."""
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
    table.add_column("mean", justify="right")
    said, (bits, mean) = _laws_in_words(law), _entropies(law)
    for step in range(tunnel.length):
        cells = []
        for name in shown:
            of = realised if name == tunnel.predict else episodes.stream
            value = np.asarray(of[name])[0]
            cells.append(_value(value[step] if tunnel.reading.sites[name].per_step else value))
        style = "" if tunnel.scored[step] else "dim"
        table.add_row(str(step + 1), *cells, said[step], bits[step], mean[step], style=style)
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


def encoding_table(tunnel: "WindTunnel", encoding: "Encoding", *, seed: int) -> Group:
    """Every token in words, and one episode as a model reads it, with the positions where predictions are read."""
    episodes = tunnel.sample(stream_key(seed, Purpose.SHOW), 1)
    inputs = encoding.encode(episodes)
    steps = {int(encoding.readout[step]): step for step in np.flatnonzero(tunnel.scored).tolist()}
    tokens = Table(title="Tokens", title_justify="left", box=None, pad_edge=False)
    tokens.add_column("token", justify="right")
    tokens.add_column("says")
    for first, last, said in _ranges(encoding):
        tokens.add_row(f"{first}" if first == last else f"{first} … {last}", Text(said))
    sequence = Table(title="One episode", title_justify="left", box=None, pad_edge=False)
    for column in ("position", "token", "says", "read here"):
        sequence.add_column(column, justify="right" if column in ("position", "token") else "left")
    for position, token in enumerate(np.asarray(inputs.tokens)[0].tolist()):
        said = encoding.decode(token)
        if inputs.features is not None:
            site = next((site for site in encoding.sites if site.first == token and site.features), None)
            if site is not None:
                own = np.asarray(inputs.features)[0, position, site.column : site.column + site.features]
                said = f"{site.name} = {_value(own)}"
        read = f"{tunnel.predict} of step {steps[position] + 1}" if position in steps else ""
        sequence.add_row(str(position), str(token), Text(said), Text(read))
    words = (
        f"{encoding.vocabulary_size} tokens, {encoding.sequence_length} positions, {encoding.features} real features."
    )
    return Group(Text(words), Text(), tokens, Text(), sequence)


def _ranges(encoding: "Encoding") -> list[tuple[int, int, str]]:
    """Tokens by site: first, last, and what the range says."""
    rows = [(token, token, marker) for token, marker in enumerate(encoding.markers)]
    for first in sorted({site.first for site in encoding.sites}):
        sites = [site for site in encoding.sites if site.first == first]
        last = first + max(site.tokens for site in sites) - 1
        ends = [encoding.decode(first), encoding.decode(last)]
        rows.append((first, last, ends[0] if first == last else f"{ends[0]} … {ends[1]}"))
    return rows


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
            "" if rung.total_variation is None else f"{rung.total_variation:.4f}",
            f"{rung.entropy_error_bits:.4f}",
            rung.description,
        )
    verdicts = [_separation(rungs, bits) for bits in sorted({tolerance_bits, *_TOLERANCES}, reverse=True)]
    return Group(table, *map(Text, verdicts))


def _separation(rungs: "tuple[Rung, ...]", tolerance_bits: float) -> str:
    close = [rung for rung in rungs if rung.kl_bits <= tolerance_bits]
    if not close:
        return f"At {tolerance_bits:g} bits the tunnel separates all of them from Bayes."
    names = ", ".join(rung.agent for rung in close)
    trivial = any(rung.trivial for rung in close)
    nothing = " A trivial agent among them means that nothing is certified here at this tolerance." if trivial else ""
    return f"Within {tolerance_bits:g} bits of Bayes: {names}.{nothing}"


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
    # Entropies of densities may have to be integrated one by one.
    count = _AVERAGED if tunnel.reading.sites[tunnel.predict].support is not None else _AVERAGED_DENSITIES
    console.print(episode_table(tunnel, tunnel.sample(key, count)))
    console.print()
    # The floor of the strictest tolerance: the least that flooring adds.
    rungs = ladder(tunnel, key, tolerance_bits=min(tolerance_bits, *_TOLERANCES))
    console.print(ladder_table(rungs, tolerance_bits))


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


def _entropies(law: Any) -> tuple[list[str], list[str]]:
    """Bits at each step: of the first episode, and on average over all of them."""
    from ppl_tunnels.verification.law_divergences import entropy_bits

    impossible = np.asarray(law.impossible)
    if impossible.any():
        return ["" if off else "?" for off in impossible[0]], [""] * law.batch_shape[1]
    try:
        bits = np.asarray(entropy_bits(law).value)
    except TunnelError:
        return ["no closed form"] * law.batch_shape[1], [""] * law.batch_shape[1]
    one, mean = ([f"{value + 0.0:.3f}" for value in row] for row in (bits[0], bits.mean(axis=0)))
    return one, mean


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
