#!/bin/sh
# Builds the adapters that need headers of this board. Needs g++ and TensorRT's headers (libnvinfer-dev).
set -eu
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
native="${1:-$here/../native}"
out="${2:-$here}"
# -Bsymbolic-functions: the executor, which another compiler made, has functions of the same names; data of the C++ library
# (identities of facets) stay one, where a compiler links that in.
${CXX:-g++} -std=c++17 -O2 -shared -fPIC -Wl,-Bsymbolic-functions "-I$native" ${CXXFLAGS:-} -o "$out/libsocsched-tensorrt.so" \
    "$here/tensorrt_adapter.cpp" "$native/cuda_driver.cpp" ${LIBRARIES:--lnvinfer} -ldl
