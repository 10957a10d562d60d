"""Makes a model of the published HHEM checkpoint: download, conversion to ONNX, and a check."""
