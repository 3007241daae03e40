"""Live: frames from a scanner or a recording, located as they come, sent on to 3D Slicer over OpenIGTLink."""
