"""Lossless weight versions: digests, deltas, manifests, the bucket, publish and follow."""
