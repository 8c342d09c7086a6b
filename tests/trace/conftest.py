"""Plans by hand are made by the simulator tests' builders; make them importable from here too."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "sim"))
