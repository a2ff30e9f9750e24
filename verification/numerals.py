"""Numbers as a person reads them: few digits, and never a digit that changes what the number says.

An upper bound is rounded up and a lower bound down, so what is printed is still a bound; where three digits would print
a bound and its tolerance alike, or in the wrong order, as many digits are printed as tell them apart.
"""

import decimal
import json

_ROUNDINGS = {
    "nearest": decimal.ROUND_HALF_EVEN,
    "up": decimal.ROUND_CEILING,
    "down": decimal.ROUND_FLOOR,
}
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_EXACT = 17  # significant digits that identify every float64


def power_of_ten(exponent: int) -> str:
    """The tick label of a decade.

    Example:
        >>> power_of_ten(-3), power_of_ten(0)
        ('10⁻³', '1')
    """
    return {0: "1", 1: "10"}.get(exponent, "10" + str(exponent).translate(_SUPERSCRIPTS))


def numeral(value: float, *, digits: int = 3, rounding: str = "nearest", percent: bool = False) -> str:
    r"""A finite number in a few significant digits; integers in full.

    Args:
        value: a finite int or float.
        digits: significant digits at most; a number that has fewer is not padded (0.01 stays 0.01).
        rounding: "nearest", "up" (for upper bounds) or "down" (for lower bounds).
        percent: write 0.99 as 99 %.

    Example:
        >>> numeral(0.0012341, rounding="up"), numeral(4.9e-5), numeral(12000), numeral(0.99, percent=True)
        ('0.00124', '4.9×10⁻⁵', '12,000', '99\xa0%')
    """
    if isinstance(value, int) and not percent:
        return f"{value:,}".replace("-", "−")
    exact = decimal.Decimal(json.dumps(value))
    number = _rounded(exact.scaleb(2) if percent else exact, digits, rounding)
    if number and not -4 <= number.adjusted() < 6:
        mantissa = format(number.scaleb(-number.adjusted()), "f")
        text = f"{mantissa}×10{str(number.adjusted()).translate(_SUPERSCRIPTS)}"
    else:
        text = format(number, ",f")
    return text.removesuffix(".0").replace("-", "−") + ("\N{NO-BREAK SPACE}%" if percent else "")


def telling_digits(tolerance: float, *, lower: float | None, estimate: float | None, upper: float | None) -> int:
    """The fewest significant digits, three or more, that keep each number on its own side of the tolerance.

    Example:
        >>> telling_digits(0.01, lower=0.002, estimate=0.005, upper=0.0099999)
        5
    """
    exact = decimal.Decimal(json.dumps(tolerance))
    sides = [(lower, "down"), (estimate, "nearest"), (upper, "up")]
    numbers = [(decimal.Decimal(json.dumps(value)), rounding) for value, rounding in sides if value is not None]
    for digits in range(3, _EXACT):
        shown = _rounded(exact, digits, "nearest")
        if all(_rounded(x, digits, rounding).compare(shown) == x.compare(exact) for x, rounding in numbers):
            return digits
    return _EXACT


def _rounded(number: decimal.Decimal, digits: int, rounding: str) -> decimal.Decimal:
    if len(number.as_tuple().digits) <= digits:
        return number
    step = decimal.Decimal((0, (1,), number.adjusted() - digits + 1))
    return number.quantize(step, rounding=_ROUNDINGS[rounding])
