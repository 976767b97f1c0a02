"""A statebook backend over one append-only file: the template for a backend of your own."""
