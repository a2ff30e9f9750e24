"""What a training step pays for its data: 64 fresh episodes and their exact laws inside one jitted loop.

Run by hand on one core: `taskset -c 0 pytest -m slow -s -n 0 tests/benchmarks/test_training_data_speed.py`. The bounds are those of
one core of a quiet server, in milliseconds a batch.
"""

import time

import jax
import pytest

from ppl_tunnels import load_tunnel

pytestmark = pytest.mark.slow

BATCH, BATCHES, ROUNDS = 64, 50, 7
BOUNDS = {"bijection": 3.0, "hmm": 3.0, "recall": 3.0, "regression": 3.0, "hmm_in_context": 6.0}


def milliseconds(tunnel) -> float:
    """Least time of a batch over several rounds."""
    oracle = tunnel.oracle()

    def one(total, key):
        law = oracle.predictive(tunnel.sample(key, BATCH))
        # Something of every leaf is needed, or the compiler leaves it out.
        return total + sum(leaf.sum() for leaf in jax.tree.leaves(law) if leaf.dtype != bool), None

    run = jax.jit(lambda key: jax.lax.scan(one, 0.0, jax.random.split(key, BATCHES))[0])
    best = float("inf")
    for round_ in range(ROUNDS + 1):
        start = time.perf_counter()
        jax.block_until_ready(run(jax.random.key(round_)))
        best = min(best, (time.perf_counter() - start) * 1e3 / BATCHES if round_ else best)
    return best


@pytest.mark.parametrize("name", BOUNDS)
def test_a_batch_costs_little(name):
    """Would catch a sampler or an oracle that would dominate the training of a small model."""
    with jax.enable_x64(True):
        taken = milliseconds(load_tunnel(name))
    print(f"\n{name}: {taken:.2f} ms a batch of {BATCH}")
    assert taken < BOUNDS[name]
