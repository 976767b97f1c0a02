"""`memory://`: the reference semantics in dictionaries under a lock. Nothing outlives the process."""
