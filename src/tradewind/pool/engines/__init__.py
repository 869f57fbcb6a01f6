"""Engines behind the protocol of pool.engine."""
