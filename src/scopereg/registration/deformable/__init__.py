"""Deformable: the deformation that a rigid pose leaves, as a smooth displacement of the frame's points."""
