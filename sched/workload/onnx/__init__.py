"""ONNX in and out: integer models are read and written (`reader`, `writer`), float ones are quantised (`quantise`).

The file of a network is an integer ONNX model that ONNX Runtime executes to the last bit as the chip does.
"""
