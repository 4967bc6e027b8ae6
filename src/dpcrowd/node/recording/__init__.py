"""Recording what happens to a node's state machine, and replaying it to the same instructions."""
