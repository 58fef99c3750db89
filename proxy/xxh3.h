// XXH3, by the widest vectors this machine has (see tinygpu_xxhash in the top CMakeLists.txt).
#pragma once

#ifdef TINYGPU_XXHASH_DISPATCH
#define XXH_STATIC_LINKING_ONLY  // the size of XXH3_state_t
#include <xxh_x86dispatch.h>
#else
#define XXH_INLINE_ALL
#include <xxhash.h>
#endif
