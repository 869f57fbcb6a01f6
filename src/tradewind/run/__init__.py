"""Recipe, launcher, live view, report, command line."""
