"""The built-in wind tunnels, one file each; a file `name.py` defines the tunnel `name`."""
