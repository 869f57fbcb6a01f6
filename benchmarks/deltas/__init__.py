"""What `codec.py` stands on: recorded deltas, published formats in our words, bounds and clocks."""
