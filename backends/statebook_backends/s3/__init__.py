"""The S3 backend: conditional writes for heads, fsspec for everything else."""
