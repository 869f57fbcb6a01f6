"""Verifiers and the killable process that runs them."""
