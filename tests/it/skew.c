/* The clock of a machine that is wrong: CLOCK_REALTIME, by TEST_CLOCK_SKEW seconds. Preloaded. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t id, struct timespec *time) {
  long failed = syscall(SYS_clock_gettime, id, time);
  if (!failed && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
    const char *skew = getenv("TEST_CLOCK_SKEW");
    time->tv_sec += skew ? atol(skew) : 0;
  }
  return (int)failed;
}
