# What all targets share: warning flags, the sanitizers, the outside libraries, and fg_library().

add_library(fg_flags INTERFACE)
target_compile_definitions(fg_flags INTERFACE _POSIX_C_SOURCE=200809L)
target_compile_options(fg_flags INTERFACE
  $<$<COMPILE_LANGUAGE:C>:-Wall -Wextra -Werror -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes
  -Wswitch-enum -Wvla -ffp-contract=off>
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Werror -Wshadow>
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-Wno-unused-parameter -Werror=all-warnings>)
target_include_directories(fg_flags INTERFACE ${PROJECT_SOURCE_DIR})

set(FG_SANITIZE_FLAGS "")
if(FG_SANITIZE)
  set(FG_SANITIZE_FLAGS "-fsanitize=${FG_SANITIZE}")
  add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:${FG_SANITIZE_FLAGS};-fno-omit-frame-pointer;-fno-sanitize-recover=all>")
  add_link_options(${FG_SANITIZE_FLAGS})
endif()
if(FG_COVERAGE) # scripts/coverage
  add_compile_options($<$<COMPILE_LANGUAGE:C>:--coverage> $<$<COMPILE_LANGUAGE:C>:-fprofile-update=atomic>)
  add_link_options(--coverage)
  string(APPEND FG_SANITIZE_FLAGS " --coverage")
endif()

find_package(Threads REQUIRED)

find_path(JANSSON_INCLUDE jansson.h REQUIRED)
find_library(JANSSON_LIBRARY NAMES libjansson.a jansson REQUIRED) # static where there is one: programs stand alone

# The serial build, linked statically: with -lopenblas Debian's alternatives may choose a build with threads of its own.
find_path(OPENBLAS_INCLUDE cblas.h PATHS /usr/include/${CMAKE_C_LIBRARY_ARCHITECTURE} PATH_SUFFIXES openblas-serial
          NO_DEFAULT_PATH REQUIRED)
find_library(OPENBLAS_LIBRARY libopenblas.a PATHS /usr/lib/${CMAKE_C_LIBRARY_ARCHITECTURE} PATH_SUFFIXES openblas-serial
             NO_DEFAULT_PATH REQUIRED)
# Its serial build shares a table of buffers between threads without a lock: runtime/host/blas_memory.c stands between.
set(OPENBLAS_LINK_FLAGS
  "-Wl,--wrap=blas_memory_alloc,--wrap=blas_memory_free,--undefined=__wrap_blas_memory_alloc")

# fg_library(NAME SOURCES pattern... [LINK library...]): a static library of the sources that match in the current folder.
function(fg_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINK" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${arg_SOURCES})
  if(NOT sources)
    set(sources ${CMAKE_CURRENT_BINARY_DIR}/${name}_empty.c)
    file(WRITE ${sources} "extern int ${name}_empty;\n")
  endif()
  add_library(${name} STATIC ${sources})
  target_link_libraries(${name} PUBLIC ${arg_LINK} PRIVATE fg_flags)
endfunction()
