"""The whole conformance suite, one item a rule."""

import tempfile

from statebook_conformance import Suite

suite = Suite(f"shelf://{tempfile.mkdtemp(prefix='shelf-')}")
