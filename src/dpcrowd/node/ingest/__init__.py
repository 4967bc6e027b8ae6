"""Check-ins as they come from outside: bodies, times, hashes. Nothing of a user is ever repeated in a refusal."""
