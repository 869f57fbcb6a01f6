"""`python -m tradewind.pool`."""

import sys

from tradewind.pool.main import main

sys.exit(main())
