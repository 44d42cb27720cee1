import { chmodSync } from 'node:fs';
import { TillsyncError } from '../../domain/errors.ts';
import { migrate } from '../migrate.ts';
import { MIRROR_MODE } from '../mirror/open-connection.ts';
import { openDatabase, storing, syncPath } from '../sqlite.ts';
import { holdUnsent } from './hold-unsent.ts';
import { type MirrorFacts, mirrorFacts, refuseUnsound } from './mirror-facts.ts';

export interface RestoredMirror {
  /** Changes that wait for a person now. */
  held: number;
  /** Where the order feed goes on: its next event has a higher number. */
  continuesAfterSeq: number;
  facts: MirrorFacts;
}

/**
 * Makes a copy of a mirror fit to be used later than its moment, in its place, before anybody reads it: the schema
 * of today; no number of the order feed that may have been given out since; nothing that is sent by itself; and
 * no catalogue value that is trusted before the platform has said it again. Throws `storage-newer`,
 * `storage-corrupt`.
 */
export function prepareRestoredMirror(
  path: string,
  options: { continueAfterSeq: number; at: string },
): RestoredMirror {
  const db = openDatabase({
    path,
    mode: MIRROR_MODE,
    busyTimeoutMs: 100,
    pragmas: { journal_mode: 'delete', recursive_triggers: 1 },
  });
  try {
    refuseUnsound(db, 'The mirror in the backup');
    migrate(db, {
      directory: new URL('../mirror/migrations/', import.meta.url),
      name: 'The mirror in the backup',
    });
    const held = storing(() =>
      db
        .transaction(() => {
          continueFeedAfter(db, options.continueAfterSeq);
          distrustCatalogue(db);
          return holdUnsent(db, options.at);
        })
        .immediate(),
    );
    const facts = storing(() => mirrorFacts(db));
    if (facts.newestSeq < options.continueAfterSeq) {
      throw new TillsyncError('internal', 'The order feed would give numbers a second time.');
    }
    return { held, continuesAfterSeq: facts.newestSeq, facts };
  } finally {
    db.close();
    chmodSync(path, MIRROR_MODE);
    syncPath(path);
  }
}

type Db = ReturnType<typeof openDatabase>;

function continueFeedAfter(db: Db, seq: number): void {
  const raised = db
    .prepare("UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = 'order_events'")
    .run(seq);
  if (raised.changes === 0) {
    db.prepare("INSERT INTO sqlite_sequence (name, seq) VALUES ('order_events', ?)").run(seq);
  }
}

function distrustCatalogue(db: Db): void {
  db.exec(`
    UPDATE products SET uncertain = 1;
    UPDATE skus SET uncertain = 1;
    UPDATE stocks SET uncertain = 1;
    UPDATE branch_products SET digest = NULL;
    DELETE FROM sweeps;
    DELETE FROM held_back_counts;
  `);
}
