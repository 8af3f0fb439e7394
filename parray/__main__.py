"""``python -m parray``: see `parray.cli`."""
import sys

from parray.cli import main

if __name__ == "__main__":
    sys.exit(main())
