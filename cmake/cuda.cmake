# The CUDA target: built wherever nvcc is found, in PATH or where its installer puts it. FG_CUDA=OFF leaves it out; without
# nvcc it is left out too, and the command says so when it is asked for.

option(FG_CUDA "the CUDA target, where nvcc is found" ON)
set(FG_CUDA_ARCHITECTURES "75;80;90" CACHE STRING
  "GPU generations that the runtime's kernels are compiled for; one of the same major number runs on later minor ones")
set(FG_NVCC "")

if(FG_CUDA)
  find_program(FG_NVCC_PROGRAM nvcc HINTS ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES bin)
  include(CheckLanguage)
  check_language(CXX)
  if(FG_NVCC_PROGRAM AND CMAKE_CXX_COMPILER)
    set(FG_NVCC ${FG_NVCC_PROGRAM})
    set(CMAKE_CUDA_COMPILER ${FG_NVCC})
    set(CMAKE_CUDA_ARCHITECTURES ${FG_CUDA_ARCHITECTURES})
    set(CMAKE_CUDA_STANDARD 17)
    set(CMAKE_CXX_STANDARD 17)
    set(CMAKE_CXX_FLAGS_RELEASE "-O2")
    set(CMAKE_CUDA_FLAGS_RELEASE "-O2")
    enable_language(CXX)
    enable_language(CUDA)
    find_package(CUDAToolkit REQUIRED)
    include(cmake/cudnn_frontend.cmake)
  else()
    message(STATUS "no CUDA target: ${FG_NVCC_PROGRAM} nvcc or a C++ compiler was not found")
  endif()
endif()
