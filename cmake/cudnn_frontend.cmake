# Headers of cudnn-frontend, from which the CUDA runtime builds cuDNN's attention (runtime/cuda/attention.cc). They are a build
# dependency and nothing more: cuDNN itself is opened when a program runs. FG_CUDNN_FRONTEND names the folder of
# cudnn_frontend.h; left empty, the folder is looked for, then taken from the vendor's wheel by pip, once a build folder. Without
# it programs use our own attention kernels alone, and say so when they start.
set(FG_CUDNN_FRONTEND "" CACHE STRING "folder of cudnn_frontend.h; empty: found or fetched by pip; OFF: attention without cuDNN")
set(FG_CUDNN_FRONTEND_VERSION 1.32.0)

# Sets `out` to the folder, where pip can fetch it.
function(fg_fetch_cudnn_frontend out)
  set(folder ${CMAKE_BINARY_DIR}/cudnn-frontend)
  if(NOT EXISTS ${folder}/include/cudnn_frontend.h)
    find_program(FG_PYTHON python3)
    if(NOT FG_PYTHON)
      message(STATUS "cudnn-frontend: no python3 to fetch it with")
      return()
    endif()
    message(STATUS "cudnn-frontend: fetching ${FG_CUDNN_FRONTEND_VERSION} with pip")
    execute_process(
      COMMAND ${FG_PYTHON} -m pip download -q --no-deps --only-binary=:all: --python-version 3.12 --implementation cp
              --platform manylinux_2_28_${CMAKE_SYSTEM_PROCESSOR} --platform manylinux_2_27_${CMAKE_SYSTEM_PROCESSOR}
              -d ${folder} nvidia-cudnn-frontend==${FG_CUDNN_FRONTEND_VERSION}
      TIMEOUT 120 RESULT_VARIABLE status OUTPUT_QUIET ERROR_VARIABLE text)
    file(GLOB wheel ${folder}/*.whl)
    if(NOT status EQUAL 0 OR NOT wheel)
      message(STATUS "cudnn-frontend: pip could not fetch it: ${text}")
      return()
    endif()
    file(ARCHIVE_EXTRACT INPUT ${wheel} DESTINATION ${folder} PATTERNS "include/*")
    file(REMOVE ${wheel})
  endif()
  set(${out} ${folder}/include PARENT_SCOPE)
endfunction()

# The result: CUDNN_FRONTEND_INCLUDE, empty where there is none.
if(FG_CUDNN_FRONTEND STREQUAL "" AND DEFINED CACHE{CUDNN_FRONTEND_INCLUDE})
  set(FG_CUDNN_FRONTEND ${CUDNN_FRONTEND_INCLUDE}) # the same said by its result's name
endif()
set(CUDNN_FRONTEND_INCLUDE "")
if(FG_CUDNN_FRONTEND STREQUAL "")
  find_path(FG_CUDNN_FRONTEND_FOUND cudnn_frontend.h HINTS ${CUDAToolkit_INCLUDE_DIRS} /usr/local/cuda/include)
  mark_as_advanced(FG_CUDNN_FRONTEND_FOUND)
  if(FG_CUDNN_FRONTEND_FOUND)
    set(CUDNN_FRONTEND_INCLUDE ${FG_CUDNN_FRONTEND_FOUND})
  else()
    fg_fetch_cudnn_frontend(CUDNN_FRONTEND_INCLUDE)
  endif()
elseif(FG_CUDNN_FRONTEND)
  if(NOT EXISTS ${FG_CUDNN_FRONTEND}/cudnn_frontend.h)
    message(FATAL_ERROR "FG_CUDNN_FRONTEND: there is no ${FG_CUDNN_FRONTEND}/cudnn_frontend.h")
  endif()
  set(CUDNN_FRONTEND_INCLUDE ${FG_CUDNN_FRONTEND})
endif()
if(CUDNN_FRONTEND_INCLUDE)
  message(STATUS "cuDNN attention: built with ${CUDNN_FRONTEND_INCLUDE}")
else()
  message(STATUS "cuDNN attention: not built; programs use our own attention kernels")
endif()
