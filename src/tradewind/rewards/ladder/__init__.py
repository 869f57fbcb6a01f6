"""The ladder: which signal can serve, found out by measuring; and stored rollouts scored again."""
