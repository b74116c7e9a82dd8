"""What statsbus does inside vLLM. Nothing here is imported by the rest of the package but `records`."""
