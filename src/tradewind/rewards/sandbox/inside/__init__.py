"""Scripts that run in the child, standard library only; the parent never trusts what they say."""
