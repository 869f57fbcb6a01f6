"""Which signal can serve, by measuring all that could: the ladder. And scoring stored rollouts again."""
