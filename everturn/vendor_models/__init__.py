"""What models of vendors can do, and providers that other packages add."""
