"""Pages to look at: what evaluate, register, track and demo found, as HTML with charts and pictures."""
