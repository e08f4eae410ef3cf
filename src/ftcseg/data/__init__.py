"""Images to samples: layouts, masks, checks, splits, and the simulated set."""
