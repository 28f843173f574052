# Read by CMake when llama.cpp is built with -DCMAKE_PROJECT_llama_cpp_INCLUDE=<this file>, as the Makefile does.
#
# It leaves llama.cpp's AMX kernels out where the compiler is not known to translate them rightly. GCC 11.3 and 12.2
# declare that _tile_loadconfig reads 8 bytes of its operand instead of 64, and so drop the other stores of the local
# struct that llama.cpp configures its tiles with (ggml_tile_config_init in ggml-cpu/amx/mmq.cpp); on a processor with AMX
# the first quantised matrix then ends the process with SIGILL. GCC 12.4, 13.3 and 14.2 and clang 14 are right. Rather
# than trust versions, we translate such a function and look: the assembly names the variable only if the store of its
# value was kept. This needs no processor with AMX. -U outranks -march=native, GGML_AMX_INT8 and the user's own flags.
include_guard(GLOBAL)

if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64|i.86)$")
  return()
endif()

file(WRITE "${CMAKE_BINARY_DIR}/tile_configuration.cpp" [[
#include <immintrin.h>
extern unsigned char rows_of_a_tile;
void configure() {
    alignas(64) struct { unsigned char palette, start, reserved[14]; unsigned short columns[16]; unsigned char rows[16]; } tiles = {};
    tiles.palette = 1;
    tiles.rows[0] = rows_of_a_tile;
    _tile_loadconfig(&tiles);
}
]])
execute_process(
  COMMAND ${CMAKE_CXX_COMPILER} -std=c++17 -O3 -mamx-tile -S -o - "${CMAKE_BINARY_DIR}/tile_configuration.cpp"
  OUTPUT_VARIABLE assembly
  ERROR_QUIET)

if(assembly MATCHES "rows_of_a_tile")
  message(STATUS "AMX: ${CMAKE_CXX_COMPILER} translates its kernels rightly, so they are built where they are wanted")
else()
  message(STATUS "AMX: left out, ${CMAKE_CXX_COMPILER} is not seen to translate its kernels rightly")
  add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:-U__AMX_INT8__>)
endif()
