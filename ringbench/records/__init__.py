"""What was seen: rows of samples, where they come from, and their file."""
