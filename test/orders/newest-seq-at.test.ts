/** Tests `newestSeqAt` of src/orders/reading/mirror-file.ts. */

import fc from 'fast-check';
import { expect, it } from 'vitest';
import { isoUtc } from '../../src/core/time.ts';
import { newestSeqAt } from '../../src/orders/reading/mirror-file.ts';
import { tempMirror } from '../outbox/outbox-fixture.ts';
import { runsOf } from '../support/seed.ts';

const NOW = 20;
const at = (minute: number) => isoUtc(minute * 60_000);

it('finds the newest event up to each of many times, also where the clock was set back', () => {
  const db = tempMirror();
  const minutes = fc.array(fc.integer({ min: 1, max: NOW + 3 }), { minLength: 1, maxLength: 12 });
  const insert = db.prepare(
    "INSERT INTO order_events (seq, order_id, observed_at, status, source) VALUES (?, 'o', ?, 'pending', 'poll')",
  );
  fc.assert(
    fc.property(minutes, minutes, (heard, asked) => {
      db.exec('DELETE FROM order_events');
      for (const [i, minute] of heard.entries()) insert.run(i + 1, at(minute));
      const newestAt = newestSeqAt(db, asked.map(at), at(NOW));
      for (const minute of asked) {
        // An event ahead of the present was written before the clock was set back.
        const seq = heard.findLastIndex((each) => each <= minute || each > NOW) + 1;
        expect(newestAt(at(minute))).toBe(seq);
      }
    }),
    { numRuns: runsOf(100) },
  );
});
