"""The collector's half of secure aggregation, sans-IO: the round, and the opening of its sum."""
