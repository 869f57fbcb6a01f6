"""`python -m tradewind.worker`."""

import sys

from tradewind.worker.main import main

sys.exit(main())
