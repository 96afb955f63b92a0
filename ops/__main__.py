"""`python -I -m ops`: the command line, as the `ops` launcher starts it."""

import sys

from ops.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
