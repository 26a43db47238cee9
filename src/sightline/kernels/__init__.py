"""Computation on a GPU with torch and Triton; imported only if `sightline.device.has_gpu` says there is one.

`graphs` runs the ONNX graphs of a bundle in torch, so that a bundle can use the GPU of a machine that has torch but no
GPU build of ONNX Runtime: `program` reads a graph, `products` and `graph_fusion` merge its operators, `operators`,
`shape_operators` and `recurrent` compute them, and small batches are captured as CUDA graphs. ONNX Runtime's CUDA
provider could not be installed on the GPU machine used for Sightline's measurements, so the two were never compared;
docs/performance.md has the speed of this implementation.

`scan` finds the nearest embeddings exactly; `stores.gpu_index` uses it. `pairs` matches pairs of a test set.
"""
