/** Tests src/cli/hooks.ts: `hooks deliveries` and `hooks send`. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { openConnection } from '../../src/db/mirror-connection.ts';
import { noteTries } from '../../src/hooks/deliveries.ts';
import { order, outgoing } from '../outbox/outbox-fixture.ts';
import { freshMirror } from '../support/fresh-mirror.ts';
import { invoke, unreachedEnv } from './invoke.ts';

const AT = '2026-01-10T12:00:00.000Z';

/** Makes a store with three orders, of which the hook `printer` took two. */
function shop() {
  const directory = mkdtempSync(join(tmpdir(), 'tillsync-hooks-'));
  const db = openConnection({ path: freshMirror(directory), readonly: false, group: undefined });
  onTestFinished(() => {
    db.close();
    rmSync(directory, { recursive: true, force: true });
  });
  const out = outgoing(db);
  for (const id of ['o1', 'o2', 'o3']) order(out, id, 'B1', [['A', 1]], 'inProcess');
  db.prepare('INSERT INTO _hooks (name, seq, began_at) VALUES (?, 2, ?)').run('printer', AT);
  const failed = { at: AT, taken: false, answer: 'printer.test answered 500', changeId: null };
  const key = { name: 'printer', event: 'order' } as const;
  noteTries(db, key, [{ ...failed, seq: 1, taken: true, answer: 'printer.test answered 200' }]);
  noteTries(db, key, [
    { ...failed, seq: 2 },
    { ...failed, seq: 2, taken: true, answer: 'printer.test answered 204' },
    { ...failed, seq: 3 },
  ]);
  const env = {
    ...unreachedEnv(directory),
    TILLSYNC_HOOKS: '[{"name":"printer","url":"http://printer.test/"}]',
  };
  /** Adds the hook `till`, which gets rejected changes and orders, and has taken one rejected change (place 1). */
  const withTill = () => {
    env.TILLSYNC_HOOKS = JSON.stringify([
      { name: 'till', url: 'http://till.test/', events: ['change.rejected', 'order'] },
      { name: 'printer', url: 'http://printer.test/' },
    ]);
    out.accept('stock', [{ qty: 1 }]);
    const place = { name: 'till', event: 'change.rejected' } as const;
    db.prepare('INSERT INTO _hooks (name, event, seq, began_at) VALUES (?, ?, 1, ?)').run(
      'till',
      place.event,
      AT,
    );
    noteTries(db, place, [{ seq: 1, at: AT, taken: true, answer: 'till.test answered 204', changeId: 7 }]);
  };
  const run = (...words: string[]) => invoke(['hooks', ...words], { env, who: 'cli ana' });
  const cursor = () => db.prepare('SELECT seq, failures, rewinds FROM _hooks').get();
  return { db, run, cursor, env, withTill };
}

test('hooks deliveries lists what a hook was sent, or what failed of it', async () => {
  const { run, env } = shop();
  const { document } = await run('deliveries', 'printer', '--json').then(({ stdout }) => ({
    document: JSON.parse(stdout),
  }));
  expect(document.deliveries).toMatchObject([
    { seq: 3, tries: 1, taken: false, orderId: 'o3', status: 'inProcess' },
    { seq: 2, tries: 2, taken: true, answer: 'printer.test answered 204' },
    { seq: 1, tries: 1, taken: true },
  ]);
  const { stdout } = await run('deliveries', 'printer', '--failed', '--limit', '1');
  expect(stdout).toMatch(
    /^LAST TRY \(\S+\) +EVENT +ORDER OR CHANGE +STATUS +TRIES +TAKEN +ANSWER\n.* 3 .*NO +printer.test answered 500\n$/,
  );
  const explained = await invoke(['order', 'explain', 'o2', '--json'], { env });
  const whats = JSON.parse(explained.stdout).entries.map(({ what }: { what: string }) => what);
  expect(whats).toContain('Hook printer took event 2 at try 2: printer.test answered 204.');
  expect((await run('deliveries', 'kitchen')).stderr).toContain('No hook kitchen is configured');
});

test('hooks send says what goes out once more, and does it only with --yes', async () => {
  const { db, run, cursor } = shop();
  const asked = await run('send', 'printer', '--from', '2');
  expect([asked.code, asked.stderr]).toEqual([
    2,
    expect.stringMatching(
      /1 event goes? to printer once more, from 2 to 2, before what waits\. Nothing was done yet\./,
    ),
  ]);
  expect(cursor()).toEqual({ seq: 2, failures: 0, rewinds: 0 });

  db.exec('UPDATE _hooks SET failures = 3');
  const done = await run('send', 'printer', '--from', '1', '--yes', '--json');
  expect(JSON.parse(done.stdout)).toEqual({
    ...{ hook: 'printer', event: 'order' },
    ...{ seq: 2, events: 2, first: 1, sent: true },
  });
  expect(cursor()).toEqual({ seq: 0, failures: 0, rewinds: 1 });
  const audit = db.prepare("SELECT who, subject, detail FROM _audit WHERE action = 'hooks.send'").get();
  expect(audit).toEqual({ who: 'cli ana', subject: 'printer', detail: '2 events again, from 1' });

  expect((await run('send', 'printer', '--from', '2', '--yes')).code).toBe(2);
  expect((await run('send', 'printer')).stderr).toContain('hooks deliveries printer');
  db.exec('DELETE FROM _hooks');
  expect((await run('send', 'printer', '--from', '1', '--yes')).stderr).toContain('has not begun');
});

test('the commands know of rejected changes, each event with its own place', async () => {
  const { db, run, withTill } = shop();
  withTill();
  const listed = JSON.parse((await run('list', '--json')).stdout);
  expect(listed).toMatchObject({ newestSeq: 3, newestSettledSeq: 1 });
  expect(listed.hooks.map(({ name, event, seq }: Record<string, unknown>) => [name, event, seq])).toEqual([
    ['till', 'order', null],
    ['till', 'change.rejected', 1],
    ['printer', 'order', 2],
  ]);
  expect((await run('list')).stdout).toMatch(
    /till +http:\/\/till\.test +change\.rejected +1 .*\n(.*\n)*Newest settled change: 1\n$/,
  );
  expect((await run('deliveries', 'till')).stdout).toMatch(
    / 1 +change 7 +rejected +1 +yes +till\.test answered 204\n$/,
  );

  const again = ['send', 'till', '--event', 'change.rejected', '--from', '1', '--yes', '--json'];
  expect(JSON.parse((await run(...again)).stdout)).toMatchObject({
    ...{ event: 'change.rejected', events: 1, first: 1 },
    sent: true,
  });
  const places = () => db.prepare("SELECT event, seq FROM _hooks WHERE name = 'till'").all();
  expect(places()).toEqual([{ event: 'change.rejected', seq: 0 }]);
  const skipped = await run('skip', 'till', '--event', 'change.rejected', '--to', 'newest');
  expect(skipped.stdout).toBe('till goes on after 1; 1 rejected change passed over.\n');
  expect(places()).toEqual([{ event: 'change.rejected', seq: 1 }]);

  const refused = await run('send', 'printer', '--event', 'change.rejected', '--from', '1', '--yes');
  expect([refused.code, refused.stderr]).toEqual([
    2,
    expect.stringContaining('The hook printer does not get change.rejected; its events: order.'),
  ]);
  const unknown = await run('skip', 'till', '--event', 'change.done');
  expect([unknown.code, unknown.stderr]).toEqual([
    2,
    expect.stringContaining('order, order.prepare, order.changed, order.undone, change.rejected'),
  ]);
  const mixed = await run('test', 'till', '--event', 'change.rejected', '--order', '1');
  expect([mixed.code, mixed.stderr]).toEqual([2, expect.stringContaining('--order is for events of orders')]);
});
