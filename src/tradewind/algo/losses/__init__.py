"""One pure tensor function per file."""
