"""What every benchmark shares: the machine, the record of figures, peers in their own processes."""
