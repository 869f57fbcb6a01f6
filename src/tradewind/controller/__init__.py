"""Groups, leases, staleness, refill."""
