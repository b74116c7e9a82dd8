# Flags that every target of ours has, and one-line ways to add a library, program, test or fuzz target.
add_library(statsbus_flags INTERFACE)
target_compile_definitions(statsbus_flags INTERFACE _GNU_SOURCE STATSBUS_VERSION="${PROJECT_VERSION}")
target_compile_options(
  statsbus_flags
  INTERFACE -Wall
            -Wextra
            -Wpedantic
            -Werror
            -Wshadow
            -Wconversion
            -Wno-sign-conversion
            -Wstrict-prototypes
            -Wmissing-prototypes
            -Wpointer-arith
            -Wcast-qual
            -Wvla
            -Wformat=2
            -Wundef
            -fno-common
            -fstack-protector-strong)
target_compile_options(statsbus_flags INTERFACE "SHELL:-include ${CMAKE_SOURCE_DIR}/common/banned.h")
if(STATSBUS_SANITIZE OR STATSBUS_FUZZ)
  target_compile_options(statsbus_flags INTERFACE -fsanitize=address,undefined -fno-sanitize-recover=all
                                                  -fno-omit-frame-pointer)
  target_link_options(statsbus_flags INTERFACE -fsanitize=address,undefined)
endif()
if(STATSBUS_FUZZ)
  target_compile_options(statsbus_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

# statsbus_library(NAME [LINK lib...]): all .c files of the current folder but main.c.
function(statsbus_library name)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS *.c)
  list(FILTER sources EXCLUDE REGEX "/main\\.c$")
  add_library(${name} STATIC ${sources})
  target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR})
  target_link_libraries(${name} PUBLIC ${ARG_LINK} PRIVATE statsbus_flags)
endfunction()

# statsbus_program(NAME LINK lib...): main.c of the current folder.
function(statsbus_program name)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  add_executable(${name} main.c)
  target_link_libraries(${name} PRIVATE ${ARG_LINK} statsbus_flags)
endfunction()

# statsbus_tests(LINK lib...): every test_*.c of the current folder is one cmocka program and one ctest.
function(statsbus_tests)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS test_*.c)
  foreach(source ${sources})
    get_filename_component(name ${source} NAME_WE)
    add_executable(${name} ${source})
    target_link_libraries(${name} PRIVATE ${ARG_LINK} PkgConfig::CMOCKA statsbus_flags)
    target_compile_definitions(${name} PRIVATE SOURCE_DIR="${CMAKE_SOURCE_DIR}")
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES TIMEOUT 120)
  endforeach()
endfunction()

# statsbus_fuzz(NAME CORPUS folder [LINK lib...]): NAME.c of the current folder as a libFuzzer program in the preset fuzz;
# elsewhere one that replays the corpus. Either way the corpus is a ctest, and an empty corpus fails.
function(statsbus_fuzz name)
  cmake_parse_arguments(ARG "" "CORPUS" "LINK" ${ARGN})
  add_executable(${name} ${name}.c)
  target_link_libraries(${name} PRIVATE ${ARG_LINK} statsbus_flags)
  if(STATSBUS_FUZZ)
    target_compile_options(${name} PRIVATE -fsanitize=fuzzer)
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    set(run ${name} -runs=0 -max_len=2000000)
  else()
    target_sources(${name} PRIVATE replay.c)
    set(run ${name})
  endif()
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz)
  add_test(NAME ${name}_corpus COMMAND ${run} ${CMAKE_CURRENT_SOURCE_DIR}/${ARG_CORPUS})
  set_tests_properties(${name}_corpus PROPERTIES TIMEOUT 300)
endfunction()
