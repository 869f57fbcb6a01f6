"""Criteria: what experts write, and what tells them whether it can be judged."""
