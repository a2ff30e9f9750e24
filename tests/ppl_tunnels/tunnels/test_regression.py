"""Regression: the textbook posterior, with known and unknown noise."""

import numpy as np
import pytest
import scipy.stats

from ppl_tunnels import load_tunnel


@pytest.fixture(scope="module")
def regression():
    return load_tunnel("regression")


def textbook(x, y, noise):
    """Mean and covariance of the weights (in units of s²), and the residual Σ that enters s²: normal-inverse-gamma."""
    precision = np.eye(x.shape[1]) + x.T @ x / noise**2
    mean = np.linalg.solve(precision, x.T @ y) / noise**2
    return mean, np.linalg.inv(precision), (y @ y / noise**2 - mean @ precision @ mean) / 2


def test_defaults_and_presets(regression):
    """Would catch defaults that drift."""
    assert (regression.length, regression.predict, regression.oracle().engine) == (12, "y", "joint Gaussian")
    assert regression.configuration["dimensions"] == 2 and regression.preset("paper").length == 20


def test_known_noise(regression):
    """Would catch a variance for a deviation, the own y among the evidence, and the noise left out of the predictive."""
    episodes = regression.probe[:4]
    law = regression.oracle().predictive(episodes)
    weights = regression.predicting("weights").oracle().predictive(episodes)
    for row in range(4):
        x, y = (episodes.stream[name][row] for name in ("x", "y"))
        for step in (0, 1, 5, 11):
            mean, spread, _ = textbook(x[:step], y[:step], 0.5)
            scale = np.sqrt(x[step] @ spread @ x[step] + 0.25)
            np.testing.assert_allclose(law.loc[row, step], x[step] @ mean, rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(law.scale[row, step], scale, rtol=1e-9)
            mean, spread, _ = textbook(x[: step + 1], y[: step + 1], 0.5)
            np.testing.assert_allclose(weights.loc[row, step], mean, rtol=1e-8, atol=1e-12)
            np.testing.assert_allclose(weights.covariance_matrix[row, step], spread, rtol=1e-8, atol=1e-12)


def test_unknown_noise(regression):
    """Would catch a Student law with the wrong degrees of freedom, and an entropy that ignores the y's."""
    tunnel = regression.configure(known_noise=False, length=6)
    episodes = tunnel.probe[:4]
    law = tunnel.oracle().predictive(episodes)
    for row in range(4):
        x, y = (episodes.stream[name][row] for name in ("x", "y"))
        for step in (0, 1, 5):
            mean, spread, residual = textbook(x[:step], y[:step], 0.5)
            shape, scale = 3.0 + step / 2, 2.0 + residual
            width = np.sqrt(scale / shape * (x[step] @ spread @ x[step] + 0.25))
            right = scipy.stats.t(2 * shape, x[step] @ mean, width)
            at = np.array([-1.3, 0.2, 2.0])
            said = [float(law.log_prob(np.full(law.batch_shape, value))[row, step]) for value in at]
            np.testing.assert_allclose(said, right.logpdf(at), rtol=1e-9)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"noise": 0.0}, "noise=0.0"),
        ({"dimensions": 0}, "dimensions=0"),
        ({"known_noise": False, "shape": 0.0}, "shape=0.0"),
    ],
)
def test_refusals(regression, settings, words):
    """Would catch a law without a density."""
    with pytest.raises(ValueError, match=words):
        regression.configure(**settings).reading  # noqa: B018
