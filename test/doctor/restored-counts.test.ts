import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { openConnection } from '../../src/db/mirror-connection.ts';
import { prepareRestoredMirror } from '../../src/support/restored-mirror.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { freshMirror } from '../support/fresh-mirror.ts';

it('forgets the counts of a backup whose id means no stock, like the others', () => {
  const path = freshMirror(mkdtempSync(join(tmpdir(), 'tillsync-restored-')));
  const db = openConnection({ path, readonly: false, group: undefined });
  db.exec(`
    INSERT INTO _id_counts (named, external_id, sku, subsidiary_id, change_id, folded_qty, given_up)
      VALUES ('{"externalId":"X"}', 'X', '2', 's1', 1, 0, 0);
    INSERT INTO _moved_ids VALUES ('X', '2', 's1')`);
  db.close();
  const auditEvent = { who: 'test', action: 'restore' } as const;
  prepareRestoredMirror(path, { continueAfterSeq: 0, audited: [], auditEvent, clock: new FakeClock() });
  const after = openConnection({ path, readonly: true, group: undefined });
  const left = after
    .prepare('SELECT named FROM _id_counts UNION ALL SELECT external_id FROM _moved_ids')
    .all();
  after.close();
  expect(left).toEqual([]);
});
