"""Parts of gateway.py: a fake engine, a load, and each gateway on a core of its own."""
