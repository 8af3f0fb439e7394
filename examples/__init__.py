"""Ten small complete programs; each runs as a script and is checked by the tests."""
