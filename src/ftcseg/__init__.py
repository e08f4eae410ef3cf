"""ftcseg: segmentation from a handful of masks and a pile of frames."""

__version__ = "0.1.0"
