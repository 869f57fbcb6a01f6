"""The sides of `engine.py`: the same 64 requests through three engines, each in its own process."""
