"""The numbers that a run must come to, by ONNX Runtime."""
