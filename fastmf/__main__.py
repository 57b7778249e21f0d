"""`python -m fastmf`: the command line."""

import sys

from fastmf.cli import main

sys.exit(main())
