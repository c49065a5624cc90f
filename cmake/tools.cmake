# Targets for people: format, lint, goldens.

file(GLOB_RECURSE FG_C_FILES CONFIGURE_DEPENDS
  base/*.[ch] ir/*.[ch] frontend/*.[ch] passes/*.[ch] readback/*.[ch] codegen/*.[ch] runtime/*.[ch] tools/*.[ch] tests/*.[ch])
list(FILTER FG_C_FILES EXCLUDE REGEX "/Inputs/") # goldens keep the form in which they are emitted
set(FG_C_SOURCES ${FG_C_FILES})
list(FILTER FG_C_SOURCES INCLUDE REGEX "\\.c$")

find_program(CLANG_FORMAT clang-format-19)
if(CLANG_FORMAT)
  add_custom_target(format COMMAND ${CLANG_FORMAT} -i ${FG_C_FILES} COMMENT "Formatting" VERBATIM)
endif()

find_program(CLANG_TIDY clang-tidy-19)
if(CLANG_TIDY)
  add_custom_target(lint
    COMMAND ${CLANG_TIDY} -p ${CMAKE_BINARY_DIR} --quiet --warnings-as-errors=* ${FG_C_SOURCES}
    COMMENT "Linting" VERBATIM)
endif()

# Rewrites what is generated and kept in the tree, and says what changed.
add_custom_target(goldens
  COMMAND sh ${PROJECT_SOURCE_DIR}/tests/tools/goldens.sh $<TARGET_FILE:fg-opt> ${PROJECT_SOURCE_DIR}
  DEPENDS fg-opt COMMENT "Regenerating docs/ops.md" VERBATIM)
