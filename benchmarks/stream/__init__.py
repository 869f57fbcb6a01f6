"""What `sync.py` runs: a synthetic run, far regions behind a shaped line, pools that are late."""
