"""Messages to token ids and back; the only place that knows a chat template."""
