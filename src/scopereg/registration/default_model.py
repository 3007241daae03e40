"""The model that every verb and call takes where none is named. Needs no torch."""

DEFAULT = "universal"
