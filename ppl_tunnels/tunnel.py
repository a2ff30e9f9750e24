"""A wind tunnel: a NumPyro program plus the roles of its sites.

Roles: *context* sites are revealed up front, *stream* sites step by step (in program order within a step), every other
sample site is *latent*; *predict* names the site whose law is wanted at every step.
"""

import dataclasses
import functools
import inspect
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from ppl_tunnels.episodes import Episodes
from ppl_tunnels.errors import TunnelError, suggest
from ppl_tunnels.identity import program_fingerprint
from ppl_tunnels.keys import Purpose, stream_key
from ppl_tunnels.program import compile_time, double_precision, require_x64, to_layout, trace_program
from ppl_tunnels.reading import Reading, read_program

if TYPE_CHECKING:
    from ppl_tunnels.encoding import Encoding
    from ppl_tunnels.information import EpisodeBits
    from ppl_tunnels.layouts import Layout
    from ppl_tunnels.oracles.oracle import Oracle

ClosedForm = Callable[..., Any]


@dataclasses.dataclass(frozen=True, eq=False)
class WindTunnel:
    """A generative process whose exact posterior is derived from its program. Made by `wind_tunnel`.

    Attributes:
        program: the raw function; an ordinary NumPyro program (it runs under handlers, Predictive, MCMC).
        name: how the command line and reports call it.
        stream: sites revealed step by step.
        predict: the site to be predicted at every step.
        context: sites revealed up front.
        step: the plate that is the step axis, where several could be.
        scoring: which steps count, as given to `wind_tunnel(scored=…)`.
        primitives: what the tunnel demands of a model: accumulation, transport, binding.
        symmetries: declared label symmetries of the program.
        closed_form: the predicted law as a function (or one function per stream site), used at any size.
        small: configurations small enough for an engine to check the closed form against.
        presets: settings by name, such as "paper" for the published sizes.
        layouts: how models may read the episodes, by name: functions of the configuration (see `ppl_tunnels.layouts`).
        settings: the configuration, as sorted pairs.
        source: where `load_tunnel` finds it again: "module:name" or "path/to/file.py:name".
    """

    program: Callable[..., Any]
    name: str
    stream: tuple[str, ...]
    predict: str
    context: tuple[str, ...] = ()
    step: str | None = None
    scoring: Any = None
    primitives: frozenset[str] = frozenset()
    symmetries: tuple[str, ...] = ()
    closed_form: ClosedForm | Mapping[str, ClosedForm] | None = None
    small: tuple[Mapping[str, Any], ...] = ()
    presets: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    layouts: "Mapping[str, Callable[..., Layout]]" = dataclasses.field(default_factory=dict)
    settings: tuple[tuple[str, Any], ...] = ()
    source: str = ""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WindTunnel) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    @property
    def _identity(self) -> tuple:
        roles = self.stream, self.predict, self.context, self.step
        form = self.closed_form
        forms = tuple(form.items()) if isinstance(form, Mapping) else form
        return self.program, self.name, roles, self.settings, forms

    @property
    def configuration(self) -> dict[str, Any]:
        """The program's keyword arguments."""
        return dict(self.settings)

    def configure(self, **settings: Any) -> "WindTunnel":
        """A new tunnel with some keyword arguments of the program changed.

        Example:
            >>> import ppl_tunnels
            >>> ppl_tunnels.load_tunnel("coin").configure(length=50).length
            50

        Raises:
            TunnelError: the program has no such argument, or the value is not plain (numbers, strings, tuples of them).
        """
        known = self.configuration
        for name, value in settings.items():
            if name not in known:
                raise TunnelError(f"tunnel {self.name!r} has no setting {name!r}; {suggest(name, list(known))}")
            known[name] = _plain(name, value)
        return dataclasses.replace(self, settings=tuple(sorted(known.items())))

    def preset(self, name: str) -> "WindTunnel":
        """The tunnel at one of the configurations that it names; settings that a preset leaves out stay as they are.

        Example:
            >>> import ppl_tunnels
            >>> ppl_tunnels.load_tunnel("bijection").preset("small").configuration["size"]
            8

        Raises:
            TunnelError: it names no such configuration.
        """
        if name not in self.presets:
            raise TunnelError(
                f"tunnel {self.name!r} has no preset {name!r}; "
                + (suggest(name, list(self.presets)) if self.presets else "it names none; set its settings one by one")
            )
        return self.configure(**self.presets[name])

    def predicting(self, site: str) -> "WindTunnel":
        """The same program with another site predicted: the hidden state instead of the next symbol, say.

        A closed form given as one function stays the law of the site that it was given for.

        Example:
            >>> import ppl_tunnels
            >>> ppl_tunnels.load_tunnel("bijection").predicting("key").predict
            'key'

        Raises:
            TunnelError: the program has no such site, or it is context.
        """
        if site == self.predict:
            return self
        form = self.closed_form
        if form is not None and not isinstance(form, Mapping):
            form = {self.predict: form}
        changed = dataclasses.replace(self, predict=site, closed_form=form)
        changed.reading  # noqa: B018  (refuses a site that cannot be predicted, here and now)
        return changed

    @functools.cached_property
    def configured_program(self) -> Callable[[], Any]:
        """The program with its configuration bound; takes no argument."""
        return functools.partial(self.program, **self.configuration)

    @property
    def reading(self) -> Reading:
        """The program's sites, roles and step axis."""
        return _read(self)

    def _read(self) -> Reading:
        reading = read_program(self.configured_program, stream=self.stream, context=self.context, step=self.step)
        if self.predict not in reading.sites:
            raise TunnelError(
                f"predict={self.predict!r} names no sample site of the program; {suggest(self.predict, list(reading.sites))}"
            )
        site = reading.sites[self.predict]
        if site.role == "context":
            raise TunnelError(
                f"predict={self.predict!r} is a context site, revealed up front; predict a stream or latent site"
            )
        if site.per_step and site.batch_shape[1:] != ():
            raise TunnelError(
                f"predict={self.predict!r} has {site.batch_shape[1:]} values at each step; a predicted site has one: draw "
                "the others at sites of their own"
            )
        return reading

    @property
    def length(self) -> int:
        """The number of steps."""
        return self.reading.steps

    @functools.cached_property
    def scored(self) -> np.ndarray:
        """Which predictions count, bool `[step]`."""
        chosen = self.scoring(**self.configuration) if callable(self.scoring) else self.scoring
        if chosen is None:
            return np.ones(self.length, dtype=bool)
        scored = np.asarray(chosen)
        if scored.dtype != bool or scored.shape != (self.length,) or not scored.any():
            raise TunnelError(
                f"scored gave {scored.dtype} of shape {scored.shape}; expected one boolean per step, shape ({self.length},), "
                "at least one of them true"
            )
        return scored

    def sample(self, key: jax.Array, n: int) -> Episodes:
        """Draw episodes from the program; pure and jittable (inside a double-precision jit).

        Args:
            key: a JAX key.
            n: how many.

        Returns:
            Episodes with context, stream and latents.
        """
        require_x64(f"{self.name}.sample", key)
        if isinstance(key, Tracer):
            with double_precision():
                return self._draw(key, n)
        # Always in the same mode, so that the compiled sampler is found again.
        with compile_time():
            return _sampler(self)(key, n)

    @property
    def probe(self) -> Episodes:
        """The same `PROBE_EPISODES` episodes every time, as NumPy arrays: what checks look at before anything else."""
        return _probe(self)

    def _draw(self, key: jax.Array, n: int) -> Episodes:
        sites = self.reading.sites

        def one(key):
            trace = trace_program(self.configured_program, {}, key)
            return {name: to_layout(jnp.asarray(trace[name]["value"]), site) for name, site in sites.items()}

        values = jax.vmap(one)(jax.random.split(key, n))
        by_role = {
            role: {name: values[name] for name in self.reading.named(role)} for role in ("stream", "context", "latent")
        }
        return Episodes(**by_role)

    def episodes(self, *, stream: Mapping[str, Any], context: Mapping[str, Any] | None = None) -> Episodes:
        """A person's own data as episodes, checked against the program's sites, shapes and supports.

        Args:
            stream: stream site name to values `[episode, step, *event]`, every stream site.
            context: context site name to values `[episode, *event]`.

        Raises:
            TunnelError: a site is missing or unknown, a shape or a value does not fit; names the first place.
        """
        from ppl_tunnels.data import checked_values

        with double_precision():
            streams = checked_values(self, "stream", stream)
            contexts = checked_values(self, "context", context or {})
        counts = {name: len(value) for name, value in {**contexts, **streams}.items()}
        if len(set(counts.values())) > 1:
            raise TunnelError(
                f"the sites were given different numbers of episodes ({', '.join(f'{name!r} {n}' for name, n in counts.items())}); "
                "give every site the same episodes"
            )
        return Episodes(stream=streams, context=contexts)

    def oracle(self) -> "Oracle":
        """The exact oracle, derived from the program (see `ppl_tunnels.oracles.derive`)."""
        return _derived(self)

    def encoding(
        self,
        layout: "Layout | str | None" = None,
        *,
        start: bool | None = None,
        shared: tuple[tuple[str, ...], ...] = (),
        features: tuple[str, ...] = (),
    ) -> "Encoding":
        """How neural models read the episodes (see `ppl_tunnels.encoding`).

        Args:
            layout: one of the tunnel's own by name (`layouts`), or a `Layout`; by default every site in program order.
            start: begin with a start token; by default only where a prediction would otherwise have no position to come from.
            shared: groups of sites that share one range of tokens, such as (("key", "value"),); by default the layout's.
            features: sites written as real features though they have tokens, such as a context of probabilities.

        Example:
            >>> import ppl_tunnels
            >>> bijection = ppl_tunnels.load_tunnel("bijection")
            >>> bijection.encoding().vocabulary_size, bijection.encoding(shared=(("key", "value"),)).vocabulary_size
            (40, 20)

        Raises:
            TunnelError: a site cannot be written so, or the layout shows an answer before it is predicted.
        """
        from ppl_tunnels.tunnel_encoding import make_encoding

        return make_encoding(self, layout, start=start, shared=shared, features=features)

    @functools.cached_property
    def episode_bits(self) -> "EpisodeBits":
        """Entropy, in bits, of what varies between episodes: context, static latents and unpredicted stream."""
        from ppl_tunnels.information import episode_bits

        return episode_bits(self)

    @functools.cached_property
    def fingerprint(self) -> str:
        """Hex SHA-256 of the program's source, what it refers to, its configuration and roles."""
        roles = {
            "stream": self.stream,
            "predict": self.predict,
            "context": self.context,
            "step": self.step,
            "scored": self.scored.tolist(),
        }
        return program_fingerprint(self.program, json.dumps([self.configuration, roles], sort_keys=True))


def wind_tunnel(
    *,
    stream: str | tuple[str, ...],
    predict: str | None = None,
    context: str | tuple[str, ...] = (),
    step: str | None = None,
    scored: Any = None,
    primitives: "set[str] | tuple[str, ...]" = (),
    symmetries: tuple[str, ...] = (),
    closed_form: ClosedForm | Mapping[str, ClosedForm] | None = None,
    small: tuple[Mapping[str, Any], ...] = (),
    presets: Mapping[str, Mapping[str, Any]] | None = None,
    layouts: "Mapping[str, Callable[..., Layout]] | None" = None,
    name: str | None = None,
) -> Callable[[Callable[..., Any]], WindTunnel]:
    """Declare the roles of a NumPyro program's sites; the program's keyword arguments become the configuration.

    Args:
        stream: sites revealed step by step.
        predict: the site to predict at every step: a stream site (posterior predictive, the default: the last one) or a
            latent one (filtering posterior).
        context: sites revealed up front.
        step: the plate that is the step axis, where several plates could be.
        scored: which steps count: booleans, or a function of the configuration that returns them. All by default.
        primitives: any of "accumulation", "transport", "binding".
        symmetries: declared label symmetries.
        closed_form: `(episodes, visible, **configuration) -> log-probabilities [episode, step, symbol]` of the predicted
            site, or a mapping from stream site to such functions. `visible` is bool `[step, step]` or None.
        small: configurations at which an engine can check the closed form.
        presets: settings by name, such as {"paper": {"length": 100}}.
        layouts: functions of the configuration that give a `ppl_tunnels.layouts.Layout`, by name.
        name: how to call it; the function's name by default.

    Example:
        >>> import jax.numpy as jnp, numpyro, numpyro.distributions as dist
        >>> @wind_tunnel(stream="face")
        ... def die(length=10):
        ...     loaded = numpyro.sample("loaded", dist.Bernoulli(0.5))
        ...     faces = jnp.where(loaded, jnp.array([0.1] * 5 + [0.5]), jnp.ones(6) / 6)
        ...     with numpyro.plate("rolls", length):
        ...         numpyro.sample("face", dist.Categorical(faces))
        >>> die.length, die.predict
        (10, 'face')

    Raises:
        TunnelError: a parameter of the program has no default, or a role is not a site's name.
    """
    unknown = set(primitives) - {"accumulation", "transport", "binding"}
    if unknown:
        raise TunnelError(f"primitives holds {sorted(unknown)}; expected any of accumulation, transport, binding")
    streams = (stream,) if isinstance(stream, str) else tuple(stream)
    if not streams:
        raise TunnelError("stream is empty; name at least one site that is revealed step by step")

    def declare(program: Callable[..., Any]) -> WindTunnel:
        settings = []
        for parameter in inspect.signature(program).parameters.values():
            if (
                parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
                or parameter.default is parameter.empty
            ):
                raise TunnelError(
                    f"program {program.__name__!r} has a parameter {str(parameter)!r} without a default; a tunnel's "
                    "parameters are its configuration, so each needs one (data is never an argument)"
                )
            settings.append((parameter.name, _plain(parameter.name, parameter.default)))
        known = [setting for setting, _ in settings]
        for preset, changes in (presets or {}).items():
            for setting in changes:
                if setting not in known:
                    raise TunnelError(
                        f"preset {preset!r} sets {setting!r}, which is no setting; {suggest(setting, known)}"
                    )
        return WindTunnel(
            program=program,
            name=name or program.__name__,
            stream=streams,
            predict=predict or streams[-1],
            context=(context,) if isinstance(context, str) else tuple(context),
            step=step,
            scoring=scored,
            primitives=frozenset(primitives),
            symmetries=tuple(symmetries),
            closed_form=closed_form,
            small=tuple(small),
            presets={preset: dict(changes) for preset, changes in (presets or {}).items()},
            layouts=dict(layouts or {}),
            settings=tuple(sorted(settings)),
            source=f"{program.__module__}:{program.__qualname__}",
        )

    return declare


# Checks that draw this many share one compilation of the sampler.
PROBE_EPISODES = 64

# Equal tunnels (the same program, roles and configuration) share what is expensive: `configure` makes new objects freely.


@functools.lru_cache(maxsize=256)
def _read(tunnel: WindTunnel) -> Reading:
    return tunnel._read()


@functools.lru_cache(maxsize=256)
def _sampler(tunnel: WindTunnel) -> Callable[[jax.Array, int], Episodes]:
    return jax.jit(tunnel._draw, static_argnums=1)


@functools.lru_cache(maxsize=256)
def _probe(tunnel: WindTunnel) -> Episodes:
    with compile_time():
        return tunnel.sample(stream_key(0, Purpose.CHECK), PROBE_EPISODES).to_numpy()


@functools.lru_cache(maxsize=256)
def _derived(tunnel: WindTunnel) -> "Oracle":
    from ppl_tunnels.oracles.derive import derive

    return derive(tunnel)


def _plain(name: str, value: Any) -> Any:
    """Settings are written into certificates and compared, so they are plain."""
    if isinstance(value, list | tuple):
        return tuple(_plain(name, item) for item in value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    raise TunnelError(
        f"setting {name!r} is a {type(value).__name__}; expected a number, a string, a boolean, None or a tuple of them "
        "(build arrays inside the program)"
    )
