/* The msgpack formats, for whoever reads or writes bytes without a cursor: mp.c, mp_write.c, agent/apply.c. */
#ifndef SB_MP_FORMAT_H
#define SB_MP_FORMAT_H

#include "mp.h"

/* First bytes (msgpack specification, "formats"); those with FIX hold a length or number in their low bits. */
enum {
    MP_FIXMAP = 0x80,
    MP_FIXARRAY = 0x90,
    MP_FIXSTR = 0xa0,
    MP_NIL = 0xc0,
    MP_NEVER = 0xc1,
    MP_FALSE = 0xc2,
    MP_TRUE = 0xc3,
    MP_BIN8 = 0xc4,
    MP_BIN16 = 0xc5,
    MP_BIN32 = 0xc6,
    MP_EXT8 = 0xc7,
    MP_EXT16 = 0xc8,
    MP_EXT32 = 0xc9,
    MP_FLOAT32 = 0xca,
    MP_FLOAT64 = 0xcb,
    MP_UINT8 = 0xcc,
    MP_UINT16 = 0xcd,
    MP_UINT32 = 0xce,
    MP_UINT64 = 0xcf,
    MP_INT8 = 0xd0,
    MP_INT64 = 0xd3,
    MP_FIXEXT1 = 0xd4,
    MP_FIXEXT16 = 0xd8,
    MP_STR8 = 0xd9,
    MP_STR16 = 0xda,
    MP_STR32 = 0xdb,
    MP_ARRAY16 = 0xdc,
    MP_ARRAY32 = 0xdd,
    MP_MAP16 = 0xde,
    MP_MAP32 = 0xdf,
    MP_NEGATIVE_FIXINT = 0xe0,
};

#endif
