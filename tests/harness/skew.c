/* The clock of a machine that is wrong. Preloaded. It is wrong by TEST_CLOCK_SKEW seconds, or by the number of
   seconds in the first eight bytes of the file TEST_CLOCK_FILE, which may change. And its monotonic clock has stood
   still for the nanoseconds in the next eight bytes, as while a machine is suspended. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int64_t fixed;
static volatile int64_t *shared;

__attribute__((constructor)) static void begin(void) {
  const char *skew = getenv("TEST_CLOCK_SKEW");
  const char *file = getenv("TEST_CLOCK_FILE");
  fixed = skew ? atol(skew) : 0;
  int fd = file ? open(file, O_RDONLY) : -1;
  if (fd >= 0) {
    void *page = mmap(0, 2 * sizeof *shared, PROT_READ, MAP_SHARED, fd, 0);
    if (page != MAP_FAILED) shared = page;
    close(fd);
  }
}

static void stand_still(struct timespec *time) {
  int64_t ns = (int64_t)time->tv_sec * 1000000000 + time->tv_nsec - shared[1];
  time->tv_sec = ns / 1000000000;
  time->tv_nsec = ns % 1000000000;
}

static int64_t skew(void) { return shared ? *shared : fixed; }

int clock_gettime(clockid_t id, struct timespec *time) {
  long failed = syscall(SYS_clock_gettime, id, time);
  if (!failed && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
    time->tv_sec += skew();
  }
  if (!failed && shared && (id == CLOCK_MONOTONIC || id == CLOCK_MONOTONIC_COARSE)) stand_still(time);
  return (int)failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  struct timespec time;
  (void)zone;
  long failed = syscall(SYS_clock_gettime, CLOCK_REALTIME, &time);
  if (!failed && now) {
    now->tv_sec = time.tv_sec + skew();
    now->tv_usec = time.tv_nsec / 1000;
  }
  return (int)failed;
}

time_t time(time_t *out) {
  struct timespec now;
  if (syscall(SYS_clock_gettime, CLOCK_REALTIME, &now)) return -1;
  time_t seconds = now.tv_sec + skew();
  if (out) *out = seconds;
  return seconds;
}
