"""What happened to a node's state machine, written down, and run through a fresh machine to the same instructions."""
