/*
 * Calls that have no safe use become compile errors. Force-included into every file of ours
 * (cmake/StatsbusHelpers.cmake); it includes the headers that declare them first, so that only calls meet the macros.
 */
#ifndef SB_BANNED_H
#define SB_BANNED_H

#include <alloca.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SB_BANNED(name) sorry_##name##_is_a_banned_function

#undef strcpy
#define strcpy(to, from) SB_BANNED(strcpy) /* sb_buf_put_text, memcpy with a length */
#undef strcat
#define strcat(to, from) SB_BANNED(strcat)
#undef strncpy
#define strncpy(to, from, n) SB_BANNED(strncpy)
#undef strncat
#define strncat(to, from, n) SB_BANNED(strncat)
#undef sprintf
#define sprintf(...) SB_BANNED(sprintf) /* snprintf, sb_buf_printf */
#undef vsprintf
#define vsprintf(...) SB_BANNED(vsprintf)
#undef strtok
#define strtok(text, set) SB_BANNED(strtok)
#undef atoi
#define atoi(text) SB_BANNED(atoi) /* sb_parse_count, strtoll with its end checked */
#undef atol
#define atol(text) SB_BANNED(atol)
#undef atoll
#define atoll(text) SB_BANNED(atoll)
#undef atof
#define atof(text) SB_BANNED(atof)
#undef gets
#define gets(to) SB_BANNED(gets)
#undef localtime
#define localtime(t) SB_BANNED(localtime)
#undef gmtime
#define gmtime(t) SB_BANNED(gmtime) /* gmtime_r */
#undef ctime
#define ctime(t) SB_BANNED(ctime)
#undef asctime
#define asctime(t) SB_BANNED(asctime)
#undef alloca
#define alloca(n) SB_BANNED(alloca)

#endif
