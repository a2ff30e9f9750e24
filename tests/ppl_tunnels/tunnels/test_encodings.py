"""Every built-in tunnel as models read it: nothing leaks, nothing is withheld, and what is written can be read again."""

import json

import numpy as np
import pytest

from ppl_tunnels import load_tunnel, tunnel_names
from ppl_tunnels.encoding import Encoding
from ppl_tunnels.verification.encoding_properties import encoding_faults

BUILT_IN = sorted(name for name, source in tunnel_names().items() if source.startswith("ppl_tunnels.tunnels."))


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_layout_of_every_tunnel(name):
    """Would catch a published layout copied with its leak, a readout off by one, and two values written alike."""
    tunnel = load_tunnel(name)
    tunnel = tunnel.preset("small") if "small" in tunnel.presets else tunnel
    for layout in (None, *tunnel.layouts):
        encoding = tunnel.encoding(layout)
        assert encoding_faults(encoding, tunnel) == [], layout
        assert Encoding.from_json(json.loads(json.dumps(encoding.to_json()))) == encoding
        episodes = tunnel.probe
        for site, (values, written) in encoding.read(encoding.encode(episodes)).items():
            given = np.asarray({**episodes.context, **episodes.stream}[site])
            flat = given.reshape(len(given), *written.shape, *values.shape[written.ndim + 1 :])
            np.testing.assert_allclose(values[:, written], flat[:, written], rtol=1e-6, err_msg=f"{layout}: {site}")
