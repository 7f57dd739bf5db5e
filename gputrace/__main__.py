"""`python -m gputrace`: the same as the `gputrace` command."""

from __future__ import annotations

import sys

from gputrace.cli import main

if __name__ == "__main__":
    sys.exit(main())
