"""Where the image lies on a tracked probe: ImageToProbe from the poses that frames are found at in a volume."""
