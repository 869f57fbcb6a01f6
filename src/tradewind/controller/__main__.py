"""`python -m tradewind.controller`."""

import sys

from tradewind.controller.main import main

sys.exit(main())
