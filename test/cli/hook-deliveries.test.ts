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

/** A store with three orders, of which the hook `printer` took two. */
function shop() {
  const directory = mkdtempSync(join(tmpdir(), 'tillsync-hooks-'));
  const db = openConnection({ path: freshMirror(directory), readonly: false, group: undefined });
  onTestFinished(() => {
    db.close();
    rmSync(directory, { recursive: true, force: true });
  });
  const out = outgoing(db);
  for (const id of ['o1', 'o2', 'o3']) order(out, id, 'B1', [['A', 1]], 'inProcess');
  db.prepare('INSERT INTO hooks (name, seq, began_at) VALUES (?, 2, ?)').run('printer', AT);
  const failed = { at: AT, taken: false, answer: 'printer.test answered 500' };
  noteTries(db, 'printer', [{ seq: 1, at: AT, taken: true, answer: 'printer.test answered 200' }]);
  noteTries(db, 'printer', [
    { ...failed, seq: 2 },
    { ...failed, seq: 2, taken: true, answer: 'printer.test answered 204' },
    { ...failed, seq: 3 },
  ]);
  const env = {
    ...unreachedEnv(directory),
    TILLSYNC_HOOKS: '[{"name":"printer","url":"http://printer.test/"}]',
  };
  const run = (...words: string[]) => invoke(['hooks', ...words], { env, who: 'cli ana' });
  const cursor = () => db.prepare('SELECT seq, failures, rewinds FROM hooks').get();
  return { db, run, cursor, env };
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
    /^LAST TRY \(\S+\) +EVENT +ORDER +STATUS +TRIES +TAKEN +ANSWER\n.* 3 .*NO +printer.test answered 500\n$/,
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

  db.exec('UPDATE hooks SET failures = 3');
  const done = await run('send', 'printer', '--from', '1', '--yes', '--json');
  expect(JSON.parse(done.stdout)).toEqual({ hook: 'printer', seq: 2, events: 2, first: 1, sent: true });
  expect(cursor()).toEqual({ seq: 0, failures: 0, rewinds: 1 });
  const audit = db.prepare("SELECT who, subject, detail FROM audit WHERE action = 'hooks.send'").get();
  expect(audit).toEqual({ who: 'cli ana', subject: 'printer', detail: '2 events again, from 1' });

  expect((await run('send', 'printer', '--from', '2', '--yes')).code).toBe(2);
  expect((await run('send', 'printer')).stderr).toContain('hooks deliveries printer');
  db.exec('DELETE FROM hooks');
  expect((await run('send', 'printer', '--from', '1', '--yes')).stderr).toContain('has not begun');
});
