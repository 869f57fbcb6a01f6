"""One optimiser step at a time: samples in, a published and committed weight version out."""
