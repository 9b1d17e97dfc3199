"""One module per thing hooked."""
