"""What the devices have spent, and against whom: pure functions over plain ledger rows."""
