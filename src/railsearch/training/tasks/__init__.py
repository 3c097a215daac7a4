"""Training tasks: the examples and the loss of each kind of data."""
