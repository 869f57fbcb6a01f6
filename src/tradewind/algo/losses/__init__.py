"""One pure tensor function per file; `registry.loss_named` finds one by name."""
