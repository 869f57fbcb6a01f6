"""The study of judges: a desk whose truth is known, faulty judges, a policy that learns."""
