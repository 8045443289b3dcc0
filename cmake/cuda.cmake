# The CUDA backend and its tests: built where ROOST_CUDA is on and nvcc is found, and not noticed
# elsewhere. The CUDA runtime is linked statically.
option(ROOST_CUDA "build the CUDA backend (needs nvcc)" OFF)
if(NOT ROOST_CUDA)
  return()
endif()

set(CMAKE_CUDA_ARCHITECTURES OFF)  # named below, and checked before the first compilation
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
# No compiler cache: it looks at the host's half of a source and would not see a changed kernel.
set(CMAKE_CUDA_COMPILER_LAUNCHER "")
enable_language(CUDA)
set(CMAKE_CUDA_FLAGS_RELWITHDEBINFO "-O2 -DNDEBUG")
# CMake 3.25 does not know that this compiler has the standard of the C++ sources.
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)

# Law 1: a multiply and an add are fused only where the source says so.
option(ROOST_CUDA_SM80 "build the kernels for compute capability 8.0 too" ON)
set(roost_cuda_options
    $<$<BOOL:${ROOST_CUDA_SM80}>:--generate-code=arch=compute_80,code=sm_80>
    --generate-code=arch=compute_90a,code=sm_90a
    -fmad=false "SHELL:-Werror all-warnings"
    -Xcompiler=-Wall,-Wextra,-Wshadow,-Werror,-ffp-contract=off,-Wno-missing-field-initializers)

file(GLOB_RECURSE roost_cuda_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/device/*.cu
     ${CMAKE_SOURCE_DIR}/src/ops/*.cu ${CMAKE_SOURCE_DIR}/src/weights/*.cu)
add_library(roost_cuda STATIC ${roost_cuda_sources})
# The options of the C++ sources are not nvcc's.
set_target_properties(roost_cuda PROPERTIES COMPILE_OPTIONS "${roost_cuda_options}")
target_link_libraries(roost_cuda PUBLIC Threads::Threads)

# Weights on the card: with them the backend is whole.
file(GLOB roost_cuda_weights CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/weights/*_cuda.cc)
add_library(roost_cuda_weights STATIC ${roost_cuda_weights})
target_link_libraries(roost_cuda_weights PUBLIC roost_weights roost_cuda roost_ops roost_device)

# A program for machines with a card: it needs the driver, the C library, and the libraries that
# tools/gpu_bundle.sh puts into lib/ beside it.
function(roost_for_cards name)
  target_link_options(${name} PRIVATE -s)
  set_target_properties(${name} PROPERTIES LINKER_LANGUAGE CUDA BUILD_RPATH "$ORIGIN/lib"
                        BUILD_RPATH_USE_ORIGIN ON CUDA_ARCHITECTURES OFF)
endfunction()

target_compile_definitions(roost_apps PRIVATE ROOST_CUDA)
target_link_libraries(roost_apps PUBLIC roost_cuda_weights)
roost_for_cards(roost)

if(ROOST_TESTS)
  # The tests of the ops once more, on the other backend; of the C++ sources only what they need.
  file(GLOB roost_cuda_tests CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/ops/*/*.cc
       ${CMAKE_SOURCE_DIR}/src/tensor/*.cc)
  list(FILTER roost_cuda_tests EXCLUDE REGEX "_cpu\\.cc$|/tensor/.*_test\\.cc$")
  add_executable(cuda_contract_test
    ${roost_cuda_tests} src/base/check.cc src/base/random.cc src/base/result.cc src/device/arena.cc
    src/device/cpu/thread_pool.cc tests/contract/contract.cc tests/contract/products.cc
    tests/contract/cuda_machine.cc tests/cuda_main.cc)
  target_include_directories(cuda_contract_test PRIVATE ${CMAKE_SOURCE_DIR})
  target_compile_definitions(cuda_contract_test PRIVATE ROOST_CONTRACT_CUDA FMT_HEADER_ONLY)
  target_compile_options(cuda_contract_test PRIVATE -g0)
  target_link_options(cuda_contract_test PRIVATE -static-libstdc++ -static-libgcc -s)
  target_link_libraries(cuda_contract_test PRIVATE roost_cuda GTest::gtest Threads::Threads)
  set_target_properties(cuda_contract_test PROPERTIES LINKER_LANGUAGE CUDA)

  # The laws of the card's own matrix products; a spilled accumulator would spoil their figures.
  add_executable(mma_law_test tests/laws/mma_law_test.cu tests/laws/cuda/rates.cu)
  target_include_directories(mma_law_test PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  target_link_libraries(mma_law_test PRIVATE roost_base)
  set_target_properties(mma_law_test PROPERTIES COMPILE_OPTIONS
    "--generate-code=arch=compute_90a,code=sm_90a;SHELL:-Werror all-warnings;SHELL:-Xptxas -warn-spills;-Xcompiler=-Wall,-Wextra,-Wshadow,-Werror")
  roost_for_cards(mma_law_test)

  # The laws and the golden data once more, with the model on the card.
  foreach(name laws golden)
    file(GLOB sources ${CMAKE_SOURCE_DIR}/tests/${name}/*_test.cc)
    list(FILTER sources EXCLUDE REGEX "/drafter_[a-z]+_test")  # of the host's backends
    add_executable(cuda_${name}_test ${sources} tests/cuda_main.cc)
    target_include_directories(cuda_${name}_test PRIVATE ${CMAKE_SOURCE_DIR})
    target_compile_definitions(cuda_${name}_test PRIVATE ROOST_MODEL_CUDA ROOST_SOURCE_DIR=".")
    target_link_libraries(cuda_${name}_test PRIVATE roost_cuda_weights roost_engine GTest::gtest)
    roost_for_cards(cuda_${name}_test)
  endforeach()

  # What drafts gain there.
  add_executable(cuda_draft_speed bench/draft_speed.cc)
  target_include_directories(cuda_draft_speed PRIVATE ${CMAKE_SOURCE_DIR})
  target_compile_definitions(cuda_draft_speed PRIVATE ROOST_MODEL_CUDA ROOST_SOURCE_DIR=".")
  target_link_libraries(cuda_draft_speed PRIVATE roost_cuda_weights roost_engine)
  roost_for_cards(cuda_draft_speed)
endif()
