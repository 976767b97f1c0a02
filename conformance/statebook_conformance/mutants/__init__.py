"""Known-bad backends: the proof that each rule can fail."""
