"""What a customer writes against: taskset files and the rollout function."""
