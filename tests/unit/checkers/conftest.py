"""Make the simulations and the builder beside these tests importable by name."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
