"""How many episodes a certificate needs: the mixture-of-bets upper bound, read as an equation for n.

Errors that all equal mu < tolerance multiply the wealth of the bet c by 1 + c (tolerance - mu) / (R - tolerance) at
every episode, and of all samples with mean mu these certify soonest (ln is concave). So the answer is a floor: a model
whose errors vary needs more, and one whose errors are rare and large needs many times as much.
"""

import numpy as np

from ppl_tunnels.verification.bounded_sample import log_inverse_alpha
from ppl_tunnels.verification.bounds import BETS


def episodes_needed(*, tolerance: float, range_: float, confidence: float, mean: float) -> int:
    """The smallest n at which n errors, all equal to `mean`, have an upper bound of at most `tolerance`.

    Args:
        tolerance: what is to be certified, in the units of the errors; mean < tolerance < range_.
        range_: R, the known range of an error.
        confidence: in (0, 1).
        mean: the error expected, at least 0; 0 gives the first n that can certify anything. Of a floored KL it is the
            model's own KL plus what flooring adds, up to a tenth of the tolerance.

    Raises:
        ValueError: the numbers are not in the order 0 <= mean < tolerance < range_, or mean and tolerance are so close
            that 2**53 episodes would not tell them apart.

    Example:
        >>> episodes_needed(tolerance=0.1, range_=1.0, confidence=0.99, mean=0.0)
        53
    """
    if not 0 <= mean < tolerance < range_ < np.inf:
        raise ValueError(
            f"mean {mean}, tolerance {tolerance}, range_ {range_}; expected 0 <= mean < tolerance < range_: no number "
            "of episodes certifies a tolerance that the model does not meet; raise the tolerance or train longer"
        )
    wanted = log_inverse_alpha(confidence)
    gains = np.log1p(np.array(BETS) * ((tolerance - mean) / (range_ - tolerance)))  # nats an episode, for each bet
    if gains[0] <= wanted * 2.0**-53:
        raise ValueError(f"mean {mean} is too close to tolerance {tolerance}: it takes more than 2**53 episodes")

    def certifies(n: int) -> bool:
        return bool(np.logaddexp.reduce(n * gains) - np.log(len(BETS)) >= wanted)

    # The slowest bet alone gets there in wanted / gains[0] episodes, and the mixture is no slower than that.
    too_few, enough = 0, int(np.ceil(wanted / gains[0])) + 1
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        too_few, enough = (too_few, middle) if certifies(middle) else (middle, enough)
    return enough
