"""The whole conformance suite, one item a rule."""

import tempfile

from statebook_conformance import Suite

_directory = tempfile.TemporaryDirectory(prefix="shelf-")
suite = Suite(f"shelf://{_directory.name}")
