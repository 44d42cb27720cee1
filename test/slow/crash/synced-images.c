/*
 * A disk that keeps only what was synced, as a preload library. At each fsync and fdatasync below
 * SYNCED_ROOT it keeps beside the real files, in SYNCED_IMAGES:
 *   data-KEY   of a file: its content and mode at its last sync
 *   names-KEY  of a directory: its entries at its last sync, one a line: type, key, mode, uid, gid, name
 * KEY is inode and birth time, so that a name and what it leads to are durable each by itself, and an inode
 * that is used again is another file. What is not in these images is gone when the power is.
 * SYNCED_LIES: a file whose path ends so is never kept: a disk that answers before it has written.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE 65536

static atomic_ulong counter;

static int stat_of(int at, const char *name, int flags, struct statx *facts) {
  return statx(at, name, flags, STATX_BASIC_STATS | STATX_BTIME, facts);
}

static void key_of(const struct statx *facts, char *key, size_t size) {
  unsigned long long born = facts->stx_btime.tv_sec * 1000000000ULL + facts->stx_btime.tv_nsec;
  snprintf(key, size, "%llu-%llu", (unsigned long long)facts->stx_ino, born);
}

static void broken(const char *what) {
  fprintf(stderr, "synced-images: %s: %s\n", what, strerror(errno));
  abort();
}

/* Under its name whole, or as it was before: a kill on the way leaves only a file of another name. */
static FILE *begin_image(char *part, size_t size) {
  unsigned long n = atomic_fetch_add(&counter, 1);
  snprintf(part, size, "%s/part-%d-%lu", getenv("SYNCED_IMAGES"), getpid(), n);
  FILE *file = fopen(part, "w");
  if (!file) broken(part);
  return file;
}

static void end_image(FILE *file, const char *part, const char *kind, const struct statx *facts) {
  char key[64], path[PATH_MAX];
  key_of(facts, key, sizeof key);
  snprintf(path, sizeof path, "%s/%s-%s", getenv("SYNCED_IMAGES"), kind, key);
  if (fclose(file) != 0 || rename(part, path) != 0) broken(path);
}

static void keep_data(int fd, const struct statx *facts) {
  char *bytes = malloc(PIECE);
  char part[PATH_MAX];
  /* Another descriptor would, when closed, drop the locks that SQLite holds on the file. */
  if (facts->stx_size > 0 && (fcntl(fd, F_GETFL) & O_ACCMODE) == O_WRONLY) broken("a file that cannot be read");
  FILE *image = begin_image(part, sizeof part);
  if (fchmod(fileno(image), facts->stx_mode & 07777) != 0) broken("fchmod");
  if (fchown(fileno(image), facts->stx_uid, facts->stx_gid) != 0) broken("fchown");
  for (off_t at = 0; facts->stx_size > 0;) {
    ssize_t got = pread(fd, bytes, PIECE, at);
    if (got < 0) broken("pread");
    if (got == 0) break;
    if (fwrite(bytes, 1, got, image) != (size_t)got) broken("fwrite");
    at += got;
  }
  free(bytes);
  end_image(image, part, "data", facts);
}

static void keep_names(const char *path, const struct statx *facts) {
  char part[PATH_MAX], key[64];
  DIR *directory = opendir(path);
  if (!directory) return;
  FILE *image = begin_image(part, sizeof part);
  for (struct dirent *entry; (entry = readdir(directory));) {
    struct statx one;
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
    if (stat_of(dirfd(directory), entry->d_name, AT_SYMLINK_NOFOLLOW, &one) != 0) continue;
    key_of(&one, key, sizeof key);
    fprintf(image, "%c %s %o %u %u %s\n", S_ISDIR(one.stx_mode) ? 'd' : 'f', key, one.stx_mode & 07777,
            one.stx_uid, one.stx_gid, entry->d_name);
  }
  closedir(directory);
  end_image(image, part, "names", facts);
}

static int ends_with(const char *text, const char *end) {
  size_t a = strlen(text), b = strlen(end);
  return b > 0 && a >= b && strcmp(text + a - b, end) == 0;
}

static void keep(int fd) {
  char link[64], path[PATH_MAX];
  struct statx facts;
  const char *root = getenv("SYNCED_ROOT"), *lies = getenv("SYNCED_LIES");
  if (!root) return;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0) return;
  path[length] = 0;
  if (strncmp(path, root, strlen(root)) != 0 || (lies && ends_with(path, lies))) return;
  if (stat_of(fd, "", AT_EMPTY_PATH, &facts) != 0) broken("statx");
  if (S_ISDIR(facts.stx_mode)) keep_names(path, &facts);
  else if (S_ISREG(facts.stx_mode)) keep_data(fd, &facts);
}

static int synced(int fd, const char *name) {
  int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
  int result = real(fd);
  int kept = errno;
  if (result == 0) keep(fd);
  errno = kept;
  return result;
}

int fsync(int fd) { return synced(fd, "fsync"); }
int fdatasync(int fd) { return synced(fd, "fdatasync"); }
