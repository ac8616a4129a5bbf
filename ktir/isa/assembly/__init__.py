"""Assembly text: written by `text`, read by `parser`."""
