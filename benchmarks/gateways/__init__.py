"""Parts of gateway.py: a fake engine, a load, and each gateway as a process on a core of its own."""
