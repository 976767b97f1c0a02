"""Real servers for tests, conformance and benchmarks: on 127.0.0.1, on free ports, in a directory of their own."""
