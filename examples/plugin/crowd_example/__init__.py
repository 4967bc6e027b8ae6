"""A scheme, a data set and a topology for dpcrowd; see pyproject.toml for the names that users give."""
