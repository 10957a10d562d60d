"""HHEM on ONNX Runtime, a local model that scores grounding."""
