"""Stock vLLM as an engine: a part runs in the pool process, a part inside vLLM."""
