/* Preloaded: counts calls of memcpy with exactly $COPY_BYTES; the count is written to $COPIES at the end. */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

static _Atomic long calls, wanted;

void *memcpy(void *restrict to, const void *restrict from, size_t bytes) {
  char *target = to;
  const char *source = from;
  if (bytes && (long)bytes == wanted) atomic_fetch_add(&calls, 1);
  while (bytes--) *target++ = *source++;
  return to;
}

__attribute__((constructor)) static void begin(void) {
  if (getenv("COPY_BYTES")) wanted = atol(getenv("COPY_BYTES"));
}

__attribute__((destructor)) static void end(void) {
  FILE *file = getenv("COPIES") ? fopen(getenv("COPIES"), "w") : NULL;
  if (!file) return;
  fprintf(file, "%ld\n", (long)calls);
  fclose(file);
}
