"""Layers and whole networks: cycles, the model's error, operators, files of users."""

#: Modules with a STUDY.
STUDIES = ("regression", "networks", "operators", "files", "models", "limits", "language", "int4", "experts")
