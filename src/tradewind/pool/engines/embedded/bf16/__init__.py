"""A step's arithmetic in bf16 with fp32 sums, compiled for processors with AVX-512 bf16."""
