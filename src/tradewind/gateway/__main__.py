"""`python -m tradewind.gateway`."""

import sys

from tradewind.gateway.main import main

sys.exit(main())
