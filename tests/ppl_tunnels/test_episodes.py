"""The container of episodes: slicing keeps the episode axis, and latents can be taken away."""

import jax
import numpy as np
import pytest

from ppl_tunnels.episodes import Episodes


@pytest.fixture
def episodes():
    return Episodes(
        stream={"x": np.arange(6).reshape(3, 2)}, context={"c": np.arange(3)}, latent={"h": np.array([7, 8, 9])}
    )


def test_a_slice_takes_the_same_episodes_of_every_role(episodes):
    """Would catch a slice along the step axis, or of the stream alone."""
    part = episodes[1:]
    assert len(part) == 2
    assert part.stream["x"].tolist() == [[2, 3], [4, 5]]
    assert part.context["c"].tolist() == [1, 2]
    assert part.latent["h"].tolist() == [8, 9]
    assert episodes[np.array([True, False, True])].latent["h"].tolist() == [7, 9]


@pytest.mark.parametrize("index", [1, np.int64(1)])
def test_an_integer_is_refused_since_it_would_drop_the_episode_axis(episodes, index):
    """Would catch a silent loss of the axis, after which steps are read as episodes."""
    with pytest.raises(TypeError, match=r"episodes\[1:2\]"):
        episodes[index]


def test_predictors_get_no_latents(episodes):
    """Would catch a predictor that can look up the answer; and the original must stay whole."""
    seen = episodes.without_latents()
    assert seen.latent == {}
    assert seen.stream is episodes.stream and episodes.latent


def test_episodes_are_a_pytree(episodes):
    """Would catch a field that jit and vmap do not see."""
    doubled = jax.tree.map(lambda leaf: 2 * leaf, episodes)
    assert doubled.latent["h"].tolist() == [14, 16, 18]
    assert len(jax.tree.leaves(episodes)) == 3
    assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(doubled.to_numpy()))
