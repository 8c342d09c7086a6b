"""From a network to code for an engine.

pipeline, passes/  the passes in order, and those that all targets share; quantize/: the arithmetic of int8
targets/           a folder for everything that belongs to one target only
builder, artifact  a stage's artefact from the cache, or built; store: the cache and what its keys depend on
toolchains/        inputs for vendors' compilers; packaging/: a pipeline's artefacts as a folder for a board
loading/           running artefacts here and on other machines, with TVM's runtime alone
native/            socsched's own C code, compiled on first use
"""
