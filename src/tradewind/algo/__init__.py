"""Credit and losses."""
