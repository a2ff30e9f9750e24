"""The pieces in which two laws are integrated: edges near the quantiles of every component, and outwards by doubling."""

import numpy as np

# An edge is left out if the one before it is closer than this share of the distance to its own neighbours.
_CLOSE = 0.5


def edges_between(places: list[np.ndarray], ends: list[np.ndarray], limits: tuple[float, float]) -> np.ndarray:
    """Ascending edges, `[row, edge]`; some coincide.

    Args:
        places: for each law `[row, component, level]`, ascending in the last axis, NaN where there is no component.
        ends: further edges, `[row]` each, such as ends of supports; NaN or infinite where there is none.
        limits: the first and the last edge.
    """
    marks, scales = [], []
    for values in places:
        gaps = np.diff(values, axis=-1)
        left = np.concatenate([gaps[..., :1], gaps], axis=-1)
        right = np.concatenate([gaps, gaps[..., -1:]], axis=-1)
        rows = values.shape[0]
        marks.append(values.reshape(rows, -1))
        scales.append(np.minimum(left, right).reshape(rows, -1))
    for end in ends:
        marks.append(np.where(np.isfinite(end), end, np.nan)[:, None])
        scales.append(np.zeros_like(end)[:, None])
    mark, scale = np.concatenate(marks, axis=1), np.concatenate(scales, axis=1)
    order = np.argsort(mark, axis=1, kind="stable")  # NaN comes last
    mark, scale = np.take_along_axis(mark, order, axis=1), np.take_along_axis(scale, order, axis=1)
    last = mark[:, 0].copy()
    kept = [last.copy()]
    for column in range(1, mark.shape[1]):
        far = mark[:, column] - last > _CLOSE * scale[:, column]  # false for NaN
        last = np.where(far, mark[:, column], last)
        kept.append(last.copy())
    inner = np.stack(kept, axis=1)
    return np.concatenate([_outwards(inner, limits[0], -1.0), inner, _outwards(inner, limits[1], 1.0)], axis=1)


def _outwards(inner: np.ndarray, limit: float, sign: float) -> np.ndarray:
    start = inner[:, -1] if sign > 0 else inner[:, 0]
    step = np.maximum(inner[:, -1] - inner[:, 0], 1.0) / 8
    count = int(np.ceil(np.log2(16 * abs(limit) * 2)))
    reach = step[:, None] * (2.0 ** np.arange(1, count + 1) - 1)
    outer = start[:, None] + sign * reach
    outer = np.minimum(outer, limit) if sign > 0 else np.maximum(outer, limit)
    return outer if sign > 0 else outer[:, ::-1]
