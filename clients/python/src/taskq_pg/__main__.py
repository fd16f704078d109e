"""``python -m taskq_pg``."""

import sys

from .cli import main

sys.exit(main())
