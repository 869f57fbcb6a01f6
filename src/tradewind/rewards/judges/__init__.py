"""Judges: models behind any OpenAI-compatible endpoint, asked one criterion at a time."""
