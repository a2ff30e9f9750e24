"""Training: fresh episodes without end, exact or sampled targets, and a predictor at the end.

Minimised is the mean over scored steps of -Σ_v t_v log q_v, where t is the oracle's law (`targets="oracle"`,
distillation) or a one-hot of the value that was drawn (`targets="sampled"`, maximum likelihood, whose minimum is the
same law). The host only reads losses: see `training_step` for what runs on the device.
"""

import dataclasses
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import jax
import numpy as np
from flax import nnx

from ppl_tunnels.keys import Purpose, stream_key
from ppl_tunnels.models.architectures import SequenceModel
from ppl_tunnels.models.configuration import FitConfig
from ppl_tunnels.models.metrics import MetricsLog, TrainingMetrics
from ppl_tunnels.models.parameters import count_parameters
from ppl_tunnels.models.predictor import ModelPredictor
from ppl_tunnels.models.training_step import Call, StepRecord, TrainingState, compiled_call, start

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
        compile_seconds: of tracing and compiling; near zero where an equal run in this process has done it.
    """

    predictor: ModelPredictor
    metrics: tuple[TrainingMetrics, ...]
    seconds: float
    compile_seconds: float


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
        progress: whether to draw a progress bar on stderr, where that is a terminal.
        on_metrics: called with each row of metrics.

    Raises:
        ValueError: the configuration does not fit the tunnel, or `directory` holds something else.
        TrainingDivergedError: the loss became infinite or not a number.

    Example:
        >>> import ppl_tunnels
        >>> coin = ppl_tunnels.load_tunnel("coin").configure(length=4, points=3)
        >>> result = fit(coin, FitConfig(steps=20, batch=8, steps_per_call=10), progress=False)
        >>> [row.step for row in result.metrics], result.predictor.targets
        ([10, 20], 'oracle')
    """
    from ppl_tunnels.models.checkpoint import require_destination, save_model

    directory = None if directory is None else Path(directory)
    if directory is not None:
        require_destination(directory / "model")  # before the work, not after it
    rows: list[TrainingMetrics] = []
    with jax.enable_x64(True):
        tunnel.oracle()  # derived before the clock starts: deriving is not compiling
        graph, state = start(tunnel, config)
        path = None if directory is None else directory / "metrics.jsonl"
        with MetricsLog(path, steps=config.steps, show=progress) as log:

            def report(row: TrainingMetrics) -> None:
                rows.append(row)
                log.write(row)
                if on_metrics is not None:
                    on_metrics(row)

            begun = time.perf_counter()
            call = compiled_call(tunnel, config)
            compile_seconds = time.perf_counter() - begun
            log.compiled(compile_seconds)
            state = _train(call, state, config, report)
        predictor = _predictor(tunnel, config, nnx.merge(graph, state.parameters))
    if directory is not None:
        save_model(predictor, directory / "model")
    return FitResult(predictor, tuple(rows), rows[-1].seconds, compile_seconds)


def _train(
    call: Call, state: TrainingState, config: FitConfig, report: Callable[[TrainingMetrics], None]
) -> TrainingState:
    """Calls to the device, from wherever the state stands, until the configured number of steps is done."""
    key = stream_key(config.seed, Purpose.TRAINING)
    begun = time.perf_counter()
    done = int(state.step)
    while done < config.steps:
        before, done = done, min(done + config.steps_per_call, config.steps)
        state, records = call(key, state)
        records = jax.tree.map(lambda values, taken=done - before: np.asarray(values)[:taken], records)
        _require_finite(records, before, config)
        report(
            TrainingMetrics(
                step=done,
                loss_bits=float(records.loss.mean()) / math.log(2),
                irreducible_bits=float(records.irreducible.mean()) / math.log(2),
                kl_bits=float(records.kl.mean()) / math.log(2),
                learning_rate=float(records.learning_rate[-1]),
                seconds=time.perf_counter() - begun,
            )
        )
    return state


def _require_finite(records: StepRecord, before: int, config: FitConfig) -> None:
    for name, values in (("irreducible", records.irreducible), ("loss", records.loss), ("KL", records.kl)):
        bad = np.flatnonzero(~np.isfinite(values))
        if not bad.size:
            continue
        where = f"is {values[bad[0]]} at step {before + int(bad[0]) + 1} of {config.steps}"
        if name == "irreducible":
            raise TrainingDivergedError(
                f"the oracle's own loss {where}: it gives probability zero to a value that the program drew; "
                "check the tunnel's oracle (ppl-tunnels check)"
            )
        raise TrainingDivergedError(
            f"training diverged: the {name} {where}; try a lower learning rate than {config.peak_learning_rate:g}, "
            f"a longer warm-up than {config.warmup:g} of the steps, or a smaller clip than {config.clip:g}"
        )


def _predictor(tunnel: "WindTunnel", config: FitConfig, model: SequenceModel) -> ModelPredictor:
    size = count_parameters(model)
    return ModelPredictor(
        model,
        tunnel.encoding(**config.encoding),
        name=f"{config.architecture} ({size:,} parameters, seed {config.seed})",
        targets=config.targets,
        training={**config.facts(), "parameters": size},
        tunnel={
            "name": tunnel.name,
            "source": tunnel.source,
            "configuration": tunnel.configuration,
            "predict": tunnel.predict,
            "fingerprint": tunnel.fingerprint,
        },
    )
