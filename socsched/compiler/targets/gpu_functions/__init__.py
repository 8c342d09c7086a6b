"""Host functions of models as GPU kernels: one source for CUDA and OpenCL, looked up by the name in `Model.device`."""
