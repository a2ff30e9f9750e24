"""Used with the built wheel in a folder of its own: nothing of the source tree is in reach."""

import importlib.util
import sys
from pathlib import Path

import ppl_tunnels

assert Path(ppl_tunnels.__file__).is_relative_to(sys.prefix), ppl_tunnels.__file__
assert "jax" not in sys.modules, "import ppl_tunnels should be cheap"
for name in ("models", "verification"):
    assert importlib.util.find_spec(name) is None, f"the wheel installs a top-level {name!r}"

import numpy as np  # noqa: E402

from ppl_tunnels.models import FitConfig, fit  # noqa: E402
from ppl_tunnels.verification import certify  # noqa: E402

coin = ppl_tunnels.load_tunnel("coin").configure(length=4, points=3)
law = coin.oracle().predictive(coin.episodes(stream={"flip": np.array([[1, 1, 1, 0]])}))
assert np.allclose(law.to_numpy()[0, :, 1], [1 / 2, 5 / 6, 9 / 10, 17 / 18]), law.to_numpy()
certificate = certify(coin.oracle().predictive, coin, tolerance_bits=0.05)
assert certificate.verdict == "certified", certificate
trained = fit(coin, FitConfig(steps=20), directory="run", progress=False)
assert certify(trained.predictor, coin, tolerance_bits=0.05).verdict in ("certified", "refuted", "undecided")

from ppl_tunnels.verification.report import write_html  # noqa: E402

write_html(certificate.to_json(), "report.html")
assert Path("report.html").stat().st_size > 10_000
print("smoke test passed")
