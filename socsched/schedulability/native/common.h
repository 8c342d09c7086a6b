/* What the analyses share.  Times are ns. */
#pragma once

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef int64_t i64;

#define NONE INT64_MIN

extern int socsched_late(void); /* late.c */

static inline i64 least_of(i64 a, i64 b) { return a < b ? a : b; }
static inline i64 most_of(i64 a, i64 b) { return a > b ? a : b; }
static inline i64 floor_div(i64 a, i64 b) { return a / b - (a % b < 0); }
static inline i64 ceil_div(i64 a, i64 b) { return -floor_div(-a, b); }
