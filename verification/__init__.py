"""placeholder"""

if __name__ != "ppl_tunnels.verification":
    raise ImportError(
        f"this folder is the package ppl_tunnels.verification; it was imported as {__name__!r}. Write 'import ppl_tunnels.verification'."
    )
