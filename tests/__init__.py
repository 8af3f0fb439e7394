"""The tests; helpers they share are imported as `tests.name`."""
