"""Small models with numpy alone: ridge logistic regression and boosted trees of depth two."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from training.devdata import Floats

__all__ = ["Boosted", "Logistic", "fit_boosted", "fit_logistic", "sigmoid"]

Node = tuple[int, float]
CLIP = 4.0  # standard deviations: one wild feature must not decide alone


def sigmoid(x: Floats) -> Floats:
    return 1 / (1 + np.exp(-np.clip(x, -40, 40)))


@dataclass(slots=True)
class Logistic:
    mean: Floats
    scale: Floats
    weights: Floats
    offsets: Floats

    def predict(self, x: Floats) -> Floats:
        """Log odds without any set's offset."""
        z = np.clip((x - self.mean) / self.scale, -CLIP, CLIP)
        return np.asarray(z @ self.weights, float)


def fit_logistic(x: Floats, y: Floats, w: Floats, sets: Floats, l2: float = 20.0) -> Logistic:
    """Newton's method; `sets` are 0/1 columns whose offsets are not penalised."""
    mean, scale = x.mean(0), x.std(0) + 1e-9
    z = np.clip((x - mean) / scale, -CLIP, CLIP)
    a = np.hstack([z, sets])
    ridge = np.diag([l2] * z.shape[1] + [1e-3] * sets.shape[1])
    b = np.zeros(a.shape[1])
    for _ in range(30):
        p = sigmoid(a @ b)
        step = np.linalg.solve(
            (a.T * (w * p * (1 - p))) @ a + ridge, a.T @ (w * (y - p)) - ridge @ b
        )
        b += step
        if np.abs(step).max() < 1e-8:
            break
    return Logistic(mean, scale, b[: z.shape[1]], b[z.shape[1] :])


@dataclass(slots=True)
class Boosted:
    """Trees as (root, left, right, four leaf values); each node is (feature, cut), left if <=."""

    trees: list[tuple[Node, Node, Node, tuple[float, float, float, float]]]

    def predict(self, x: Floats) -> Floats:
        total = np.zeros(len(x))
        for (f, c), (lf, lc), (rf, rc), (a, b, d, e) in self.trees:
            left = np.where(x[:, lf] <= lc, a, b)
            right = np.where(x[:, rf] <= rc, d, e)
            total += np.where(x[:, f] <= c, left, right)
        return total


def _split(
    bins: npt.NDArray[np.intp],
    cuts: list[Floats],
    g: Floats,
    h: Floats,
    rows: npt.NDArray[np.intp],
    columns: npt.NDArray[np.intp],
    leaf: int,
    lam: float,
) -> tuple[int, int] | None:
    total_g = g[rows].sum()
    total_h = h[rows].sum()
    best = 1e-6
    where = None
    for j in columns:
        size = len(cuts[j]) + 1
        if size < 2:
            continue
        b = bins[rows, j]
        left_g = np.cumsum(np.bincount(b, g[rows], size))[:-1]
        left_h = np.cumsum(np.bincount(b, h[rows], size))[:-1]
        left_n = np.cumsum(np.bincount(b, minlength=size))[:-1]
        gain = (
            left_g**2 / (left_h + lam)
            + (total_g - left_g) ** 2 / (total_h - left_h + lam)
            - total_g**2 / (total_h + lam)
        )
        gain[(left_n < leaf) | (len(rows) - left_n < leaf)] = -1
        k = int(gain.argmax())
        if gain[k] > best:
            best = float(gain[k])
            where = (int(j), k)
    return where


def fit_boosted(
    x: Floats,
    y: Floats,
    w: Floats,
    base: Floats,
    *,
    trees: int = 110,
    rate: float = 0.08,
    leaf: int = 20,
    lam: float = 10.0,
    seed: int = 0,
) -> Boosted:
    """Gradient boosting of the logistic loss from the log odds `base` (each set's own rate).

    Half of the features and 70 % of the rows are drawn for each tree, from `seed`.
    """
    rng = np.random.default_rng(seed)
    n, width = x.shape
    cuts = [np.unique(np.quantile(x[:, j], np.linspace(0, 1, 33)[1:-1])) for j in range(width)]
    bins = np.stack([np.searchsorted(c, x[:, j], side="left") for j, c in enumerate(cuts)], 1)
    f = base.copy()
    model = Boosted([])
    for _ in range(trees):
        p = sigmoid(f)
        g, h = w * (y - p), w * p * (1 - p)
        drawn = np.flatnonzero(rng.random(n) < 0.7)
        columns = np.flatnonzero(rng.random(width) < 0.5)

        def value(rows: npt.NDArray[np.intp], g: Floats = g, h: Floats = h) -> float:
            return float(rate * g[rows].sum() / (h[rows].sum() + lam))

        root = _split(bins, cuts, g, h, drawn, columns, leaf, lam)
        if root is None:
            continue
        sides: list[tuple[Node, float, float]] = []
        low = bins[drawn, root[0]] <= root[1]
        for part in (drawn[low], drawn[~low]):
            at = _split(bins, cuts, g, h, part, columns, leaf, lam) if len(part) > leaf else None
            if at is None:
                v = value(part)
                sides.append(((0, float("inf")), v, v))
                continue
            inside = bins[part, at[0]] <= at[1]
            cut = float(cuts[at[0]][at[1]])
            sides.append(((at[0], cut), value(part[inside]), value(part[~inside])))
        (left, a, b), (right, c, d) = sides
        tree = ((root[0], float(cuts[root[0]][root[1]])), left, right, (a, b, c, d))
        model.trees.append(tree)
        f += Boosted([tree]).predict(x)
    return model
