"""A monitor over trajectories: known exploits as rules, and how many of them it finds."""
