"""`python -m tradewind.grader`."""

import sys

from tradewind.grader.main import main

sys.exit(main())
