"""Key streams never meet, and no bit of a seed is lost."""

import jax
import numpy as np
import pytest

from ppl_tunnels.keys import Purpose, stream_key


def words(seed, purpose):
    return tuple(np.asarray(jax.random.key_data(stream_key(seed, purpose))).tolist())


def test_every_seed_and_purpose_has_a_key_of_its_own():
    """Would catch a purpose that is ignored, and the upper half of a 64-bit seed dropped or folded onto the lower one."""
    seeds = [0, 1, 2, 2**31, 2**32 - 1, 2**32, 2**32 + 1, 2**62, 2**63 - 1]
    keys = {words(seed, purpose) for seed in seeds for purpose in Purpose}
    assert len(keys) == len(seeds) * len(Purpose)


def test_keys_do_not_depend_on_the_precision_mode():
    """Would catch a certificate that cannot be recomputed by a caller in single precision."""
    for seed in (3, 2**40 + 5):
        with jax.enable_x64(False):
            narrow = words(seed, Purpose.CERTIFICATION)
        assert narrow == words(seed, Purpose.CERTIFICATION)


def test_the_numbers_behind_purposes_are_frozen():
    """Would catch a renumbering, after which old certificates name other episodes."""
    assert {purpose.name: int(purpose) for purpose in Purpose} == {
        "TRAINING": 1,
        "SELECTION": 2,
        "CERTIFICATION": 3,
        "CHECK": 4,
        "SHOW": 5,
        "INITIALISATION": 6,
    }


@pytest.mark.parametrize("seed", [-1, 2**63])
def test_a_seed_out_of_range_is_refused(seed):
    """Would catch two seeds silently sharing one key."""
    with pytest.raises(ValueError, match=f"seed is {seed}; expected an integer from 0 to"):
        stream_key(seed, Purpose.TRAINING)
