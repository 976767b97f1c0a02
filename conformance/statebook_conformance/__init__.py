"""The conformance suite of statebook: it certifies any backend against the contract."""
