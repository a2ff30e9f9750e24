"""`python -m ppl_tunnels` is `ppl-tunnels`."""

from ppl_tunnels.cli import main

if __name__ == "__main__":
    main()
