"""Process models: what is publicly known about a crowd before any record of it; fitting them, and their files."""
