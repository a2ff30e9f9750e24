"""The part of training that runs on the device: many optimiser steps in one compiled call.

Step i draws its episodes with fold_in(key, i): no two steps share a key, and step i is the same whether the run began
at 0 or at i. It is traced under x64, because programs and oracles are float64; parameters, activations and the
optimiser's moments are float32.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from ppl_tunnels.encoding import Inputs
from ppl_tunnels.keys import Purpose, stream_key
from ppl_tunnels.models.architectures import build
from ppl_tunnels.models.architectures import logits as answers
from ppl_tunnels.models.configuration import FitConfig
from ppl_tunnels.models.losses import cross_entropy, kl_divergence, one_hot_targets
from ppl_tunnels.models.optimisers import optimiser, schedule

if TYPE_CHECKING:
    from ppl_tunnels.tunnel import WindTunnel


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


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class StepRecord:
    """What a step found, float64 scalars (or `[step]`), NaN for steps beyond the last: nats per scored prediction.

    Attributes:
        loss: the model's cross-entropy against the targets.
        irreducible: the exact law's.
        kl: KL(oracle ‖ model).
        learning_rate: of the step.
    """

    loss: jax.Array
    irreducible: jax.Array
    kl: jax.Array
    learning_rate: jax.Array


Call = Callable[[jax.Array, TrainingState], tuple[TrainingState, StepRecord]]


def start(tunnel: "WindTunnel", config: FitConfig) -> tuple[nnx.GraphDef, TrainingState]:
    """The structure of the model, and the state before the first step; weights depend on the seed alone."""
    key = stream_key(config.seed, Purpose.INITIALISATION)
    model = build(config.architecture, tunnel.encoding(**config.encoding), config.options, key=key)
    graph, parameters = nnx.split(model, nnx.Param)
    return graph, TrainingState(jnp.zeros((), jnp.int32), parameters, optimiser(config).init(parameters))


def compiled_call(tunnel: "WindTunnel", config: FitConfig) -> Call:
    """`steps_per_call` steps in one call, compiled ahead of time: nothing can compile again in the middle of a run.

    Args:
        tunnel: draws the episodes; its oracle must be derivable.
        config: of the run; runs that differ in nothing but their seed share one compilation.

    Returns:
        A function of the stream's key and the state, giving the next state and one record `[step]`. Steps beyond
        `config.steps` change nothing. To be called under x64.
    """
    return _compiled(tunnel, dataclasses.replace(config, seed=0))


@functools.lru_cache(maxsize=8)
def _compiled(tunnel: "WindTunnel", config: FitConfig) -> Call:
    graph, state = start(tunnel, config)
    step = _one_step(tunnel, config, graph)

    def skip(key: jax.Array, state: TrainingState) -> tuple[TrainingState, StepRecord]:
        return state, StepRecord(*[jnp.full((), jnp.nan, jnp.float64)] * len(dataclasses.fields(StepRecord)))

    def call(key: jax.Array, state: TrainingState) -> tuple[TrainingState, StepRecord]:
        def advance(state: TrainingState, _: None) -> tuple[TrainingState, StepRecord]:
            return jax.lax.cond(state.step < config.steps, step, skip, key, state)

        return jax.lax.scan(advance, state, length=config.steps_per_call)

    return jax.jit(call).lower(stream_key(0, Purpose.TRAINING), state).compile()


def _one_step(tunnel: "WindTunnel", config: FitConfig, graph: nnx.GraphDef) -> Call:
    encoding, oracle = tunnel.encoding(**config.encoding), tunnel.oracle()
    rule, rate = optimiser(config), schedule(config)
    scored = np.flatnonzero(tunnel.scored)

    def loss(parameters: nnx.State, inputs: Inputs, targets: jax.Array) -> tuple[jax.Array, jax.Array]:
        logits = answers(nnx.merge(graph, parameters), inputs, encoding.readout[scored])
        log_q = jax.nn.log_softmax(logits, axis=-1)
        return cross_entropy(targets, log_q), log_q

    def step(key: jax.Array, state: TrainingState) -> tuple[TrainingState, StepRecord]:
        episodes = tunnel.sample(jax.random.fold_in(key, state.step), config.batch)
        log_p = oracle.predictive(episodes).log_probs[:, scored]
        if config.targets == "oracle":
            targets = jnp.exp(log_p).astype(jnp.float32)
        else:
            targets = one_hot_targets(encoding.targets(episodes)[:, scored], encoding.outputs)
        (value, log_q), gradients = jax.value_and_grad(loss, has_aux=True)(
            state.parameters, encoding.encode(episodes), targets
        )
        updates, moments = rule.update(gradients, state.moments, state.parameters)
        record = StepRecord(
            loss=value.astype(jnp.float64),
            irreducible=cross_entropy(targets.astype(jnp.float64), log_p),
            kl=kl_divergence(log_p, log_q.astype(jnp.float64)),
            learning_rate=jnp.asarray(rate(state.step), jnp.float64),
        )
        return TrainingState(state.step + 1, optax.apply_updates(state.parameters, updates), moments), record

    return step
