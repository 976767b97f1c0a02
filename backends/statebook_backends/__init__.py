"""The backends of statebook: one package each, one entry point each, named by URL scheme."""
