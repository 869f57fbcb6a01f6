"""A small continuous-batching engine on torch for CPUs; not a rival to vLLM on GPUs."""
