import { closeSync, fchmodSync, fsyncSync, openSync } from 'node:fs';
import { TillsyncError } from '../../domain/errors.ts';
import { migrate } from '../migrate.ts';
import { continueFeedAfter } from '../mirror/feed-start.ts';
import { MIRROR_MODE } from '../mirror/open-connection.ts';
import { openDatabase, storing } from '../sqlite.ts';
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
    const file = openSync(path, 'r');
    try {
      fchmodSync(file, MIRROR_MODE);
      fsyncSync(file);
    } finally {
      closeSync(file);
    }
  }
}

type Db = ReturnType<typeof openDatabase>;

function distrustCatalogue(db: Db): void {
  db.exec(`
    UPDATE products SET uncertain = 1;
    UPDATE skus SET uncertain = 1;
    UPDATE stocks SET uncertain = 1;
    UPDATE branch_products SET digest = NULL;
    DELETE FROM sweeps;
    UPDATE stocks SET show_uncertain = 1;
    DELETE FROM stock_counts;
  `);
}
