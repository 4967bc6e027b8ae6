"""What a node counts and measures for monitoring; nothing here depends on raw counts."""
