"""A trained network -> a file that other programs run: ONNX or OpenVINO, without torch and without ftcseg."""
