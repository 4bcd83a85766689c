"""What people and programs read: pure functions from flat rows to text."""
