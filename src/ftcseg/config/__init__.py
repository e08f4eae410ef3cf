"""Settings: the only place that knows presets, override strings and how values are chosen."""
