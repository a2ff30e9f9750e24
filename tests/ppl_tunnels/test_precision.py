"""Single precision is refused wherever it hides, and the caller's mode changes nothing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from ppl_tunnels import load_tunnel, wind_tunnel
from ppl_tunnels.errors import TunnelError
from ppl_tunnels.oracles.derive import derive
from ppl_tunnels.oracles.precision import check_double_precision

PROGRAMS = Path(__file__).with_name("programs.py")
NARROW = jnp.array([0.3, 0.7], dtype=jnp.float32)
NARROW_NUMPY = np.array([0.3, 0.7], dtype=np.float32)
NARROW_NUMBER = jnp.float32(0.3)


def observe(probs):
    with numpyro.plate("n", 2):
        numpyro.sample("x", dist.Categorical(probs))


REFUSED = {
    "captured": lambda: observe(NARROW),
    "captured, then widened": lambda: observe(NARROW.astype(float)),
    "captured, then multiplied": lambda: observe(NARROW * jnp.ones(2)),
    "captured from NumPy": lambda: observe(jnp.ones(2) * NARROW_NUMPY),
    "a captured number": lambda: observe(jnp.stack([1 - NARROW_NUMBER, NARROW_NUMBER])),
    "cast inside": lambda: observe(jnp.array([0.3, 0.7]).astype(jnp.bfloat16).astype(float)),
    "a parameter of a prior": lambda: observe(
        jnp.full(2, 0.5) + 0 * numpyro.sample("z", dist.Bernoulli(NARROW_NUMBER))
    ),
    "inside a vmapped function": lambda: observe(jnp.vectorize(lambda p: p * NARROW[0])(jnp.ones(2))),
}


@pytest.mark.parametrize("case", REFUSED)
def test_narrow_constants_are_refused_with_the_remedy(case):
    """Would catch probabilities 3e-8 off without a warning, also where a constant is folded before anybody looks."""
    tunnel = wind_tunnel(stream="x", name="narrow")(REFUSED[case])
    for refuse in (check_double_precision, derive):
        with pytest.raises(
            TunnelError, match=r"'narrow' holds single-precision numbers.*(float32|bfloat16).*inside the program"
        ):
            refuse(tunnel)


def test_wide_programs_pass():
    """Would catch a check that refuses integers, or constants made inside the program."""
    check_double_precision(load_tunnel(f"{PROGRAMS}:panel"))


SCRIPT = """
import json, sys
import jax, numpy as np
from ppl_tunnels import load_tunnel
casino = load_tunnel(sys.argv[1] + ":casino")
assert not jax.config.jax_enable_x64
episodes = casino.episodes(stream={"face": np.array([[5, 5, 0, 5]])})
oracle = casino.oracle()
law, start = oracle.predictive(episodes), oracle.posterior(episodes, "start")
evidence = oracle.log_evidence(episodes)
print(json.dumps({
    "dtypes": sorted({str(x.dtype) for x in (law.log_probs, law.probs, start.log_probs, evidence, law.to_numpy())}),
    "law": np.asarray(law.log_probs).tolist(),
    "start": np.asarray(start.log_probs).tolist(),
    "evidence": np.asarray(evidence).tolist(),
    "draws": np.asarray(casino.sample(jax.random.key(3), 2).stream["face"]).tolist(),
    "tokens": np.asarray(casino.encoding().encode(episodes).tokens).tolist(),
    "fingerprint": casino.fingerprint,
}))
"""


def test_a_caller_in_single_precision_gets_the_same_numbers_to_the_last_bit():
    """Would catch float64 laws truncated, other draws for the same key, and a fingerprint that differs between processes."""
    import jax

    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT, str(PROGRAMS)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"},  # compiled as here: bits are compared
    )
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    casino = load_tunnel(f"{PROGRAMS}:casino")
    episodes = casino.episodes(stream={"face": np.array([[5, 5, 0, 5]])})
    oracle = casino.oracle()
    assert found["dtypes"] == ["float64"]
    assert found["law"] == np.asarray(oracle.predictive(episodes).log_probs).tolist()
    assert found["start"] == np.asarray(oracle.posterior(episodes, "start").log_probs).tolist()
    assert found["evidence"] == np.asarray(oracle.log_evidence(episodes)).tolist()
    assert found["draws"] == casino.sample(jax.random.key(3), 2).stream["face"].tolist()
    assert found["tokens"] == casino.encoding().encode(episodes).tokens.tolist()
    assert found["fingerprint"] == casino.fingerprint
