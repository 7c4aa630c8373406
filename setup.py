"""What is compiled; all else is in pyproject.toml, where setuptools takes this as an experiment only."""

from glob import glob

from setuptools import Extension, setup

SOURCES = "models/parallelism/incremental/cpp"

setup(
    ext_modules=[
        Extension(
            "models.parallelism.incremental.compiled_search",
            [f"{SOURCES}/compiled_search.cpp"],
            depends=sorted(glob(f"{SOURCES}/*.hpp")),
            # Fused operations round otherwise.
            extra_compile_args=["-std=c++17", "-O2", "-g0", "-ffp-contract=off", "-fvisibility=hidden"],
            py_limited_api=True,
            # Without a C++ compiler there is the same in NumPy.
            optional=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
