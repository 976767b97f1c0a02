"""Make the storage and the stage beside these tests importable by name."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
