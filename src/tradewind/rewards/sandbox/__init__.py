"""Where code that nobody has read is run: levels that were measured, never assumed."""
