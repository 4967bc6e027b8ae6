"""What is simulated for the figures: the plan, its points, how they are run, and where their results are kept."""
