"""Choosing an engine for a program.

To add an engine: write it in a file of its own with the methods of `oracle.Engine` and a `from_tunnel` that returns it, or
a sentence saying which of its conditions the program fails; then list it here, in order of preference.
"""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

from ppl_tunnels.errors import NoEngineError
from ppl_tunnels.oracles.causality import check_program_runs_forward
from ppl_tunnels.oracles.closed_form import ClosedFormEngine
from ppl_tunnels.oracles.conjugacy import ConjugatePart
from ppl_tunnels.oracles.enumeration import EnumerationEngine
from ppl_tunnels.oracles.filtering import FilteringEngine
from ppl_tunnels.oracles.joint_gaussian import JointGaussianPart
from ppl_tunnels.oracles.kalman import KalmanPart
from ppl_tunnels.oracles.oracle import Engine, Oracle
from ppl_tunnels.oracles.parts import parts_engine
from ppl_tunnels.oracles.precision import check_double_precision
from ppl_tunnels.program import compile_time

if TYPE_CHECKING:
    from ppl_tunnels.tunnel import WindTunnel

Builder = Callable[["WindTunnel"], "Engine | str"]


def _concretely(build: Builder) -> Builder:
    """Builders that look at numbers do so even while somebody else's function is being traced."""

    @functools.wraps(build)
    def built(tunnel):
        with compile_time():
            return build(tunnel)

    return built


ENGINES: dict[str, Builder] = {
    ClosedFormEngine.name: _concretely(ClosedFormEngine.from_tunnel),
    FilteringEngine.name: _concretely(FilteringEngine.from_tunnel),
    EnumerationEngine.name: EnumerationEngine.from_tunnel,
    "conjugacy": lambda tunnel: parts_engine(tunnel, (ConjugatePart.from_tunnel,)),
    "Kalman": lambda tunnel: parts_engine(tunnel, (KalmanPart.from_tunnel,)),
    "joint Gaussian": lambda tunnel: parts_engine(tunnel, (JointGaussianPart.from_tunnel,)),
    "mixed parts": lambda tunnel: parts_engine(
        tunnel, (ConjugatePart.from_tunnel, KalmanPart.from_tunnel, JointGaussianPart.from_tunnel)
    ),
}


def derive(tunnel: "WindTunnel", engine: str | None = None) -> Oracle:
    """The exact oracle of a tunnel's program.

    Args:
        tunnel: what to derive from.
        engine: one of `ENGINES`; by default the first that applies.

    Raises:
        NoEngineError: no engine applies; the message gives each one's failed condition and the remedy.
        TunnelError: the program itself is refused (it runs backward, or in single precision).
    """
    if engine is not None and engine not in ENGINES:
        raise NoEngineError(f"engine={engine!r} is not an engine; choose one of {', '.join(ENGINES)}")
    check_double_precision(tunnel)
    check_program_runs_forward(tunnel)
    refusals = []
    for name in ENGINES if engine is None else (engine,):
        built = ENGINES[name](tunnel)
        if not isinstance(built, str):
            return Oracle(tunnel=tunnel, derived=built)
        refusals.append(f"{name}: {built}")
    raise NoEngineError(
        f"no engine derives the oracle of tunnel {tunnel.name!r}.\n  " + "\n  ".join(refusals) + f"\n{REMEDY}"
    )


REMEDY = (
    "What to do: give a continuous latent a finite prior (ppl_tunnels.discretise(distribution, points)), or a conjugate one; carry a "
    "state of finitely many values; make the configuration smaller; or supply the law yourself (wind_tunnel(closed_form=…))."
)


def considered(tunnel: "WindTunnel") -> dict[str, str | None]:
    """Every engine in order of preference, and which condition the program fails for it (None where it applies).

    Raises:
        TunnelError: the program itself is refused, whatever the engine.

    Example:
        >>> import ppl_tunnels
        >>> reasons = considered(ppl_tunnels.load_tunnel("coin"))
        >>> reasons["enumeration"], reasons["closed form"]
        (None, 'the tunnel supplies none (wind_tunnel(closed_form=…))')
    """
    check_double_precision(tunnel)
    check_program_runs_forward(tunnel)
    built = {name: build(tunnel) for name, build in ENGINES.items()}
    return {name: engine if isinstance(engine, str) else None for name, engine in built.items()}
