"""What a node counts and measures for its operator's monitor; nothing here has seen a raw count."""
