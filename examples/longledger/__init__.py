"""A ledger that no window holds: pages of bookings, and a question about all of them."""
