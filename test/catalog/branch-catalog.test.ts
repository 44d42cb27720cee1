import { expect, it } from 'vitest';
import { newestRev, nextChanges, nextRange } from '../../src/catalog/branch-catalog.ts';
import { many, swept } from '../outbox/swept-outbox.ts';
import { takeOn } from '../support/take-on-role.ts';

// A branch applies a feed entry in one transaction, during which its POS cannot write, so entries must be small.
it('an entry of the catalogue has fifty products at most, and the next one goes on behind it', () => {
  const { db } = swept(many);
  takeOn(db, 'hub');
  const ids = many.map((_, i) => `m${i}`).sort();
  const first = nextRange(db, '');
  expect(first).toEqual({ after: '', to: ids[49] });
  expect(nextRange(db, first.to ?? '')).toEqual({ after: ids[49], to: ids[99] });
  expect(nextRange(db, ids[239] ?? '')).toEqual({ after: ids[239], to: null });

  const add = db.prepare("INSERT INTO _catalog_news (branch, product_id) VALUES ('B1', ?)");
  for (const id of ids.slice(0, 60)) add.run(id);
  const toRev = newestRev(db);
  expect(nextChanges(db, 'B1', toRev - 60)).toEqual({ fromRev: toRev - 60, toRev: toRev - 10 });
  expect(nextChanges(db, 'B1', toRev - 10)).toEqual({ fromRev: toRev - 10, toRev });
  expect(nextChanges(db, 'B1', toRev)).toBeUndefined();
});
