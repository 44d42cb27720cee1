/*
 * Preloaded into a process whose disk and wall clock are to fail. What fails stands in files of $FAULTS, each
 * looked for at every call, so that a fault begins and ends with its file:
 *
 *   sync-fails        TEXT     fsync and fdatasync of paths with TEXT end with EIO, what was written stays unsynced
 *   write-fails       TEXT     writes to paths with TEXT end with EROFS
 *   io-fails          TEXT     reads, writes and syncs of paths with TEXT end with EIO
 *   sync-slow         MS TEXT  fsync and fdatasync of paths with TEXT take MS longer
 *   kill-at-write     MARK     the process dies before it writes bytes with MARK to a database
 *   kill-after-sync   MARK     it dies once bytes with MARK, and the file they are in, are on the disk
 *   kill-at-step      N TEXT   it dies before its N-th write, truncation or sync of paths with TEXT
 *   wall-offset       SECONDS  the wall clock is off by so much
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long steps;
static int marked = -1;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* Content of a fault's file; 0 when the fault is off. */
static int fault(const char *name, char *text, size_t size) {
  const char *directory = getenv("FAULTS");
  char path[512];
  if (!directory) return 0;
  snprintf(path, sizeof path, "%s/%s", directory, name);
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  ssize_t length = REAL(read)(file, text, size - 1);
  close(file);
  if (length <= 0) return 0;
  text[length] = 0;
  return 1;
}

static int is_of(int fd, const char *text) {
  char link[64], path[512];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length <= 0) return 0;
  path[length] = 0;
  return strstr(path, text) != NULL;
}

static void die(void) {
  kill(getpid(), SIGKILL);
  pause();
}

/* A line "NUMBER TEXT" that is for this file: its number; else -1. */
static long number_for(int fd, const char *name) {
  char text[256], *rest;
  if (!fault(name, text, sizeof text)) return -1;
  long number = strtol(text, &rest, 10);
  return is_of(fd, *rest == ' ' ? rest + 1 : rest) ? number : -1;
}

static void step(int fd) {
  long last = number_for(fd, "kill-at-step");
  if (last >= 0 && ++steps >= last) die();
}

static int io_fails(int fd) {
  char text[256];
  int saved = errno;
  if (fd > 2 && fault("io-fails", text, sizeof text) && is_of(fd, text)) {
    errno = EIO;
    return 1;
  }
  errno = saved;
  return 0;
}

ssize_t read(int fd, void *bytes, size_t count) {
  return io_fails(fd) ? -1 : REAL(read)(fd, bytes, count);
}
ssize_t pread(int fd, void *bytes, size_t count, off_t at) {
  return io_fails(fd) ? -1 : REAL(pread)(fd, bytes, count, at);
}
ssize_t pread64(int fd, void *bytes, size_t count, off64_t at) {
  return io_fails(fd) ? -1 : REAL(pread64)(fd, bytes, count, at);
}

static int before_write(int fd, const void *bytes, size_t count) {
  char text[256];
  int saved = errno;
  if (io_fails(fd)) return -1;
  if (fd > 2) {
    if (fault("write-fails", text, sizeof text) && is_of(fd, text)) {
      errno = EROFS;
      return -1;
    }
    step(fd);
    if (fault("kill-at-write", text, sizeof text) && is_of(fd, ".db") && memmem(bytes, count, text, strlen(text))) die();
    if (fault("kill-after-sync", text, sizeof text) && is_of(fd, ".db") && memmem(bytes, count, text, strlen(text)))
      marked = fd;
  }
  errno = saved;
  return 0;
}

ssize_t write(int fd, const void *bytes, size_t count) {
  return before_write(fd, bytes, count) ? -1 : REAL(write)(fd, bytes, count);
}
ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at) {
  return before_write(fd, bytes, count) ? -1 : REAL(pwrite)(fd, bytes, count, at);
}
ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t at) {
  return before_write(fd, bytes, count) ? -1 : REAL(pwrite64)(fd, bytes, count, at);
}
int ftruncate(int fd, off_t size) {
  step(fd);
  return REAL(ftruncate)(fd, size);
}
int ftruncate64(int fd, off64_t size) {
  step(fd);
  return REAL(ftruncate64)(fd, size);
}

static int sync_with(int fd, int (*real)(int)) {
  char text[256];
  if (io_fails(fd)) return -1;
  step(fd);
  if (fault("sync-fails", text, sizeof text) && is_of(fd, text)) {
    errno = EIO;
    return -1;
  }
  long slowMs = number_for(fd, "sync-slow");
  if (slowMs > 0) usleep(slowMs * 1000);
  int result = real(fd);
  if (marked == fd) die();
  return result;
}
int fsync(int fd) { return sync_with(fd, REAL(fsync)); }
int fdatasync(int fd) { return sync_with(fd, REAL(fdatasync)); }

static long wall_offset(void) {
  static __thread long offset, looked_at = -1;
  struct timespec now;
  REAL(clock_gettime)(CLOCK_MONOTONIC, &now);
  long tick = now.tv_sec * 50 + now.tv_nsec / 20000000;
  if (tick != looked_at) {
    char text[64];
    looked_at = tick;
    offset = fault("wall-offset", text, sizeof text) ? atol(text) : 0;
  }
  return offset;
}
int clock_gettime(clockid_t id, struct timespec *at) {
  int result = REAL(clock_gettime)(id, at);
  if (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE) at->tv_sec += wall_offset();
  return result;
}
int gettimeofday(struct timeval *restrict at, void *restrict zone) {
  int result = REAL(gettimeofday)(at, zone);
  if (at) at->tv_sec += wall_offset();
  return result;
}
time_t time(time_t *at) {
  time_t now = REAL(time)(NULL) + wall_offset();
  if (at) *at = now;
  return now;
}
