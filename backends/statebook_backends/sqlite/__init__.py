"""`sqlite://`: one file, shared by all processes of a machine. Native journals, state and atomic storage."""
