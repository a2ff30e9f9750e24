"""What is summed or integrated for each measure of a pair of laws, as functions of log p and log q, in nats.

Each is nonnegative, so that nothing cancels between places:  p log(p/q) - p + q  for KL, |p - q| / 2 for total variation,
(√p - √q)² / 2 for squared Hellinger, and  [p log(p/m) + q log(q/m)] / 2  with m = (p + q) / 2 for Jensen-Shannon.
"""

from collections.abc import Callable

import numpy as np

# (log p, log q, log dx/dz) -> the integrand; +inf where KL has no finite one.
PairIntegrand = Callable[[np.ndarray, np.ndarray], np.ndarray]


def _log_ratio(log_p: np.ndarray, log_q: np.ndarray) -> np.ndarray:
    """log(q / p); 0 where both are 0."""
    with np.errstate(invalid="ignore"):
        return np.where(np.isneginf(log_p) & np.isneginf(log_q), 0.0, log_q - log_p)


def kl(log_p: np.ndarray, log_q: np.ndarray) -> np.ndarray:
    p, q, r = np.exp(log_p), np.exp(log_q), _log_ratio(log_p, log_q)
    with np.errstate(invalid="ignore", over="ignore"):
        near = p * (np.expm1(np.clip(r, -1.0, 1.0)) - r)
        far = np.where(p > 0, q - p - p * r, q)
    return np.where(np.abs(r) < 1, near, far)


def total_variation(log_p: np.ndarray, log_q: np.ndarray) -> np.ndarray:
    p, q, r = np.exp(log_p), np.exp(log_q), _log_ratio(log_p, log_q)
    return 0.5 * np.where(np.abs(r) < 1, p * np.abs(np.expm1(np.clip(r, -1.0, 1.0))), np.abs(q - p))


def squared_hellinger(log_p: np.ndarray, log_q: np.ndarray) -> np.ndarray:
    r = _log_ratio(log_p, log_q)
    near = np.exp(log_p) * np.expm1(np.clip(r, -1.0, 1.0) / 2) ** 2
    return 0.5 * np.where(np.abs(r) < 1, near, (np.exp(log_q / 2) - np.exp(log_p / 2)) ** 2)


def jensen_shannon(log_p: np.ndarray, log_q: np.ndarray) -> np.ndarray:
    t = np.tanh(_log_ratio(log_p, log_q) / 2)  # p = m (1 - t), q = m (1 + t)
    m = (np.exp(log_p) + np.exp(log_q)) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        apart = np.where(t > -1, (1 + t) * np.log1p(t), 0.0) + np.where(t < 1, (1 - t) * np.log1p(-t), 0.0)
    return 0.5 * m * apart
