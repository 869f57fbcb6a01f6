"""Tradewind: train a language-model agent inside the product it will live in."""

__version__ = "0.1.0"
