"""Backends: kernel code -> something that runs.  `source` prints what targets share, `cpu` and `cuda` the rest."""
