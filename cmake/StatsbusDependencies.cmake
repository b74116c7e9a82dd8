# Libraries by pkg-config, as imported targets.
find_package(PkgConfig REQUIRED)
find_package(ZLIB REQUIRED)
pkg_check_modules(ZMQ REQUIRED IMPORTED_TARGET libzmq)
pkg_check_modules(CZMQ REQUIRED IMPORTED_TARGET libczmq)
pkg_check_modules(MICROHTTPD REQUIRED IMPORTED_TARGET libmicrohttpd)
pkg_check_modules(YAML REQUIRED IMPORTED_TARGET yaml-0.1)
if(STATSBUS_TESTS)
  pkg_check_modules(CMOCKA REQUIRED IMPORTED_TARGET cmocka)
  # Debian 12 calls it msgpack, newer systems msgpack-c. Only tests and benchmarks use it, as the peer to compare with.
  pkg_search_module(MSGPACK REQUIRED IMPORTED_TARGET msgpack-c msgpack)
endif()
