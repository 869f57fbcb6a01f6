"""`python -m tradewind.relay`."""

import sys

from tradewind.relay.main import main

sys.exit(main())
