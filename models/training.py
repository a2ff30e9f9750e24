"""Training: fresh episodes drawn on the device, many steps to a call, exact or sampled targets.

Step i draws its episodes with fold_in(stream_key(seed, TRAINING), i), so no episode is seen twice, none is ever used to
certify, and step i is the same whether the run began at 0 or at i. One call to the device is a `lax.scan` over
`steps_per_call` steps; the host only reads losses. The call is traced under x64, because programs and oracles are float64;
parameters, activations and the optimiser's moments are float32.
"""

import dataclasses
import functools
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from ppl_tunnels.keys import Purpose, stream_key
from ppl_tunnels.models.architectures import build
from ppl_tunnels.models.configuration import FitConfig
from ppl_tunnels.models.losses import cross_entropy, kl_divergence, one_hot_targets
from ppl_tunnels.models.metrics import MetricsLog, TrainingMetrics
from ppl_tunnels.models.optimisers import optimiser, schedule
from ppl_tunnels.models.parameters import count_parameters
from ppl_tunnels.models.predictor import ModelPredictor

if TYPE_CHECKING:
    from ppl_tunnels.tunnel import WindTunnel


class TrainingDivergedError(ValueError):
    """The loss is no longer a number; names the step and what to try."""


@dataclasses.dataclass(frozen=True)
class FitResult:
    """What a training run gives.

    Attributes:
        predictor: the trained model, ready to be certified.
        metrics: one row per call to the device.
        seconds: of training, compilation apart.
        compile_seconds: of tracing and compiling (0.0 where an equal run in this process had compiled before).
    """

    predictor: ModelPredictor
    metrics: tuple[TrainingMetrics, ...]
    seconds: float
    compile_seconds: float


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TrainingState:
    """Everything that one step hands to the next; a run continued from it is the run that was not interrupted.

    Attributes:
        step: how many steps are done, int32 scalar.
        parameters: the model's, float32.
        moments: the optimiser's state.
    """

    step: jax.Array
    parameters: nnx.State
    moments: Any


def fit(
    tunnel: "WindTunnel",
    config: FitConfig,
    *,
    directory: str | Path | None = None,
    progress: bool = True,
    on_metrics: Callable[[TrainingMetrics], None] | None = None,
) -> FitResult:
    """Train a model in a tunnel.

    Args:
        tunnel: draws the episodes, and its oracle gives targets and the irreducible loss.
        config: architecture, optimiser, targets, seed.
        directory: where `metrics.jsonl` grows, and the folder `model` appears once training is over; nothing is written
            if not given. A model already there is replaced in one go, at the end.
        progress: whether to draw a progress bar on stderr.
        on_metrics: called with each row of metrics.

    Raises:
        ValueError: the configuration does not fit the tunnel.
        TrainingDivergedError: the loss became infinite or not a number.

    Example:
        >>> import ppl_tunnels
        >>> coin = ppl_tunnels.load_tunnel("coin").configure(length=4, points=3)
        >>> result = fit(coin, FitConfig(steps=20, batch=8, steps_per_call=10), progress=False)
        >>> [row.step for row in result.metrics], result.predictor.targets
        ([10, 20], 'oracle')
    """
    directory = None if directory is None else Path(directory)
    with jax.enable_x64(True):
        encoding = tunnel.encoding()
        key = stream_key(config.seed, Purpose.INITIALISATION)
        graph, parameters = nnx.split(build(config.architecture, encoding, config.options, key=key), nnx.Param)
        state = TrainingState(jnp.zeros((), jnp.int32), parameters, optimiser(config).init(parameters))
        rows = []
        path = None if directory is None else directory / "metrics.jsonl"
        with MetricsLog(path, steps=config.steps, show=progress) as log:
            program, compile_seconds = _compiled(tunnel, graph, config, state)
            log.compiled(compile_seconds)
            for state, row in _train(program, state, config):
                rows.append(row)
                log.write(row)
                if on_metrics is not None:
                    on_metrics(row)
        model = nnx.merge(graph, state.parameters)
    predictor = ModelPredictor(
        model,
        encoding,
        name=f"{config.architecture} ({count_parameters(model):,} parameters, seed {config.seed})",
        targets=config.targets,
        training={**config.facts(), "parameters": count_parameters(model)},
        tunnel={
            "name": tunnel.name,
            "source": tunnel.source,
            "configuration": tunnel.configuration,
            "fingerprint": tunnel.fingerprint,
        },
    )
    if directory is not None:
        from ppl_tunnels.models.checkpoint import save_model

        save_model(predictor, directory / "model")
    return FitResult(predictor, tuple(rows), rows[-1].seconds, compile_seconds)


def _train(
    program: Callable[[jax.Array, TrainingState], tuple[TrainingState, dict[str, jax.Array]]],
    state: TrainingState,
    config: FitConfig,
) -> Iterator[tuple[TrainingState, TrainingMetrics]]:
    """Calls to the device until the configured number of steps is done."""
    key = stream_key(config.seed, Purpose.TRAINING)
    rate, begun = schedule(config), time.perf_counter()
    first = int(state.step)
    while first < config.steps:
        state, found = program(key, state)
        last = min(first + config.steps_per_call, config.steps)
        bits = {name: np.asarray(values)[: last - first] / math.log(2) for name, values in found.items()}
        _require_finite(bits, first, config)
        yield (
            state,
            TrainingMetrics(
                step=last,
                **{f"{name}_bits": float(values.mean()) for name, values in bits.items()},
                learning_rate=float(rate(last - 1)),
                seconds=time.perf_counter() - begun,
            ),
        )
        first = last


def _require_finite(bits: dict[str, np.ndarray], first: int, config: FitConfig) -> None:
    for name in ("irreducible", "loss", "kl"):
        bad = np.flatnonzero(~np.isfinite(bits[name]))
        if not bad.size:
            continue
        step, value = first + int(bad[0]) + 1, bits[name][bad[0]]
        if name == "irreducible":
            raise TrainingDivergedError(
                f"the oracle's own loss is {value} at step {step}: it gives probability zero to a value that the program drew; "
                "check the tunnel's oracle (ppl-tunnels check)"
            )
        raise TrainingDivergedError(
            f"training diverged: the {'loss' if name == 'loss' else 'KL to the oracle'} is {value} at step {step} of {config.steps}; "
            f"try a lower learning rate than {config.peak_learning_rate:g}, a longer warm-up than {config.warmup:g} of the steps, or a "
            f"smaller clip than {config.clip:g}"
        )


def _compiled(
    tunnel: "WindTunnel", graph: nnx.GraphDef, config: FitConfig, state: TrainingState
) -> tuple[Callable[..., Any], float]:
    """The compiled call and the seconds it took; seeds share one, since only the key and the weights differ."""
    tunnel.oracle()  # deriving it is not compilation
    begun = time.perf_counter()
    shared = dataclasses.replace(config, seed=0)
    known = _program.cache_info().hits
    program = _program(tunnel, graph, shared, _Shape(state))
    return program, 0.0 if _program.cache_info().hits > known else time.perf_counter() - begun
