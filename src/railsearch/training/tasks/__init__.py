"""Training tasks: what the loop trains, one file for each kind of data."""
