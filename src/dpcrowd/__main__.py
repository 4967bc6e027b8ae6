"""`python -m dpcrowd` is the command line."""

import sys

from dpcrowd.cli.main import main

sys.exit(main())
