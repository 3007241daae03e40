"""The speed of networks and methods: what is timed, stage by stage where that helps, and the table of it."""
