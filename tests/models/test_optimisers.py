"""Optimisers: Muon touches the matrices and nothing else, the schedule ends at zero, moments are float32."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from ppl_tunnels.models.configuration import FitConfig
from ppl_tunnels.models.optimisers import matrices, optimiser, schedule
from ppl_tunnels.models.transformer import Transformer, TransformerConfig

MATRICES = {"attend/project_3xDxD", "attend/out_DxD", "think/up_DxF", "think/down_FxD"}


@pytest.fixture(scope="module")
def parameters() -> nnx.State:
    model = Transformer(TransformerConfig(vocabulary=5, positions=6, outputs=3, width=8), rngs=nnx.Rngs(0))
    return nnx.state(model, nnx.Param)


def named(tree: nnx.State) -> dict[str, np.ndarray]:
    return {"/".join(map(str, path)): np.asarray(leaf[...]) for path, leaf in nnx.to_flat_state(tree)}


@functools.cache
def first_step(config: FitConfig):
    """A jitted (gradients, parameters) -> (updates, moments)."""
    rule = optimiser(config)
    return jax.jit(lambda gradients, parameters: rule.update(gradients, rule.init(parameters), parameters))


def first_update(config: FitConfig, parameters: nnx.State, gradients: nnx.State) -> dict[str, np.ndarray]:
    return named(first_step(config)(gradients, parameters)[0])


def noise(parameters: nnx.State) -> nnx.State:
    leaves, structure = jax.tree.flatten(parameters)
    keys = jax.random.split(jax.random.key(1), len(leaves))
    drawn = [jax.random.normal(k, leaf.shape, jnp.float32) for k, leaf in zip(keys, leaves, strict=True)]
    return jax.tree.unflatten(structure, drawn)


def test_only_matrices_of_blocks_are_marked(parameters):
    marks = {"/".join(map(str, path)): mark for path, mark in nnx.to_flat_state(matrices(parameters))}
    assert {name for name, mark in marks.items() if mark} == {f"blocks/0/{name}" for name in MATRICES}
    assert {name for name, mark in marks.items() if not mark} >= {"tokens_VxD", "positions_SxD", "head_DxO"}


def test_muon_orthogonalises_matrices_and_leaves_tables_to_adam(parameters):
    config = FitConfig(learning_rate=0.5, warmup=0.0, clip=1e9)
    updates = first_update(config, parameters, noise(parameters))
    for name, update in updates.items():
        if name.removeprefix("blocks/0/") in MATRICES:
            # Newton–Schulz brings singular values near 1; wide matrices are scaled by √(outputs / inputs).
            scale = max(1.0, update.shape[-1] / update.shape[-2]) ** 0.5
            singular = np.linalg.svd(update / scale / config.peak_learning_rate, compute_uv=False)
            assert (singular > 0.3).all() and (singular < 1.3).all(), (name, singular)
        else:
            # Adam's first step follows the signs of the gradient alone: one size everywhere.
            np.testing.assert_allclose(np.abs(update), np.abs(update).max(), rtol=1e-2, err_msg=name)


def test_queries_keys_and_values_are_orthogonalised_apart(parameters):
    gradients = noise(parameters)
    other = jax.tree.map(lambda leaf: leaf, gradients)
    project = other["blocks"][0]["attend"]["project_3xDxD"]
    project[...] = project[...].at[0].multiply(-3.0)
    config = FitConfig(learning_rate=0.5, warmup=0.0, clip=1e9)
    one, two = (first_update(config, parameters, g)["blocks/0/attend/project_3xDxD"] for g in (gradients, other))
    np.testing.assert_allclose(two[0], -one[0], atol=1e-5)
    np.testing.assert_array_equal(two[1:], one[1:])


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
def test_weight_decay_shrinks_matrices_alone(parameters, optimizer):
    config = FitConfig(optimizer=optimizer, learning_rate=0.5, weight_decay=0.1, warmup=0.0)
    weights = named(parameters)
    for name, update in first_update(config, parameters, jax.tree.map(jnp.zeros_like, parameters)).items():
        decays = name.removeprefix("blocks/0/") in MATRICES
        np.testing.assert_allclose(update, -0.05 * weights[name] if decays else 0.0, rtol=1e-5, err_msg=name)


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
def test_moments_are_float32_under_x64(parameters, optimizer):
    rule = optimiser(FitConfig(optimizer=optimizer))
    state = rule.init(parameters)
    updates, after = jax.eval_shape(rule.update, parameters, state, parameters)
    assert {leaf.dtype for leaf in jax.tree.leaves(updates)} == {np.dtype("float32")}
    for leaf in (*jax.tree.leaves(state), *jax.tree.leaves(after)):
        # Muon's three coefficients are the exception; they are cast where they are used.
        assert leaf.dtype != np.float64 or leaf.shape == (3,)
    assert jax.tree.map(lambda x: x.dtype, state) == jax.tree.map(lambda x: x.dtype, after)


def test_gradients_are_clipped_by_their_global_norm(parameters):
    config = FitConfig(optimizer="adamw", clip=0.1)
    clipped = first_step(config)(parameters, parameters)[1]
    adam = next(s for s in jax.tree.leaves(clipped, is_leaf=lambda s: hasattr(s, "mu")) if hasattr(s, "mu"))
    norm = np.sqrt(sum(float((leaf**2).sum()) for leaf in jax.tree.leaves(adam.mu)))
    assert norm == pytest.approx(0.1 * (1 - 0.9), rel=1e-5)


def test_schedule_rises_for_its_share_and_falls_to_zero():
    config = FitConfig(steps=200, warmup=0.1, learning_rate=2.0)
    rates = np.array([float(schedule(config)(step)) for step in range(201)])
    assert rates[0] == 0 and rates[20] == 2 and rates[200] == pytest.approx(0, abs=1e-9)
    assert (np.diff(rates[:21]) > 0).all() and (np.diff(rates[20:]) < 0).all()
    assert float(schedule(FitConfig(steps=10, warmup=0.0, learning_rate=2.0))(0)) == 2
