"""Random ONNX models against ONNX Runtime."""
