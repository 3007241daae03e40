"""Finding the pose of a frame in a volume."""
