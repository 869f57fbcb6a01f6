"""`python -m tradewind`."""

from tradewind.run.cli import main

main()
