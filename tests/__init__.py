"""The tests.  pytest puts this folder on the path: what they share is imported by its own name (`import graphs`)."""
