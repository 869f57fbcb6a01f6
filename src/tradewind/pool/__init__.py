"""Hosts an engine, follows the weight stream, proves and swaps."""
