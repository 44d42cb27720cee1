/* ask read|write FILE SQL: runs SQL as a POS's own library would, one row a line. Built into one program with sqlite3.c. */
#include <stdio.h>
#include <string.h>
#include "sqlite3.h"

static int row(void *unused, int columns, char **values, char **names) {
  (void)unused;
  (void)names;
  for (int i = 0; i < columns; i++) printf("%s%s", i ? "|" : "", values[i] ? values[i] : "NULL");
  printf("\n");
  return 0;
}

int main(int argc, char **argv) {
  if (argc != 4) return 2;
  int flags = strcmp(argv[1], "read") == 0 ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE;
  sqlite3 *db;
  char *fault = NULL;
  int failed = sqlite3_open_v2(argv[2], &db, flags, NULL);
  if (!failed) {
    sqlite3_busy_timeout(db, 5000);
    failed = sqlite3_exec(db, argv[3], row, NULL, &fault);
  }
  if (failed) fprintf(stderr, "%s\n", fault ? fault : sqlite3_errmsg(db));
  sqlite3_close(db);
  return failed ? 1 : 0;
}
