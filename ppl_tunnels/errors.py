"""What the library refuses, and why: every message names what was given, what was expected and what to do."""


class TunnelError(ValueError):
    """A program, its roles or its data cannot be what was asked of them."""


class NoEngineError(TunnelError):
    """No engine derives the exact oracle of this program; the message lists each engine's failed condition."""


class OracleDisagreementError(TunnelError):
    """Two ways of computing the same exact law differ: nothing may be certified against either."""


class ImpossibleEvidenceWarning(UserWarning):
    """The program gives the evidence probability zero, so no law conditions on it; its rows are zero throughout."""


def suggest(given: str, known: "list[str] | tuple[str, ...]") -> str:
    """A sentence fragment that helps with a misspelt name.

    Example:
        >>> suggest("vlaue", ["key", "value"])
        "did you mean 'value'? (known: key, value)"
    """
    import difflib

    close = difflib.get_close_matches(given, known, n=1)
    listing = f"(known: {', '.join(known) or 'none'})"
    return f"did you mean {close[0]!r}? {listing}" if close else listing
