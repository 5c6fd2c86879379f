"""What a workload can be: a layer, a network, gradients in training, a saved file; `table` lists the kinds."""
