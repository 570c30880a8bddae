"""One module per section of the suite; each has NAME and run(budget) -> Section."""
