"""The benchmarks of statebook: workloads over any backend, beside the raw engine in the same run."""
