/** Tests src/support/differential.ts and src/support/backup-files.ts. */

import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, it } from 'vitest';
import { openMirror } from '../../src/app/mirror.ts';
import { systemClock } from '../../src/core/system-clock.ts';
import { newRecoveryPhrase } from '../../src/support/recovery-phrase.ts';
import { observation } from '../orders/open-test-mirror.ts';
import { sampleNotification } from '../support/order-samples.ts';
import { rowsIn } from '../support/rows.ts';
import { keepSigningKey } from '../support/signing-key.ts';
import { commandsAt } from './invoke.ts';

const WHOLE = 'tillsync-till-20260301T080000Z.tar.gz';
const DIFFERENTIAL = 'tillsync-till-20260301T080000Z.differential.tar.gz';
const SINCE = '2026-03-01T07:50:00Z';

/** Makes a store and a directory for its backups, which are encrypted for `recipient`. */
function store(recipient = '', platform = 'https://platform.test') {
  const directory = mkdtempSync(path.join(tmpdir(), 'tillsync-differential-'));
  const storage = path.join(directory, 'storage');
  const backups = path.join(directory, 'backups');
  const config = path.join(directory, 'config.toml');
  mkdirSync(backups);
  const callAt = (url: string) =>
    writeFileSync(
      config,
      `[platform]\nbase_url = "${url}"\n[storage]\ndirectory = "${storage}"\n[backup]\nrecipient = "${recipient}"\n`,
    );
  callAt(platform);
  const commands = commandsAt({ env: { PATH: process.env.PATH ?? '', TILLSYNC_CONFIG: config } });
  const write = async (sql: string) => {
    const mirror = openMirror({ path: path.join(storage, 'mirror.db'), clock: systemClock });
    await mirror.write((db) => void db.exec(sql));
    await mirror.close();
  };
  return {
    storage,
    backups,
    ...commands,
    /** Sets another address of the platform. */
    callAt,
    at: (name: string) => path.join(backups, name),
    async order(number: number) {
      const mirror = openMirror({ path: path.join(storage, 'mirror.db'), clock: systemClock });
      await mirror.save([{ kind: 'order', observation: observation('poll', sampleNotification(number)) }]);
      await mirror.close();
    },
    acknowledge: (orderId: string, at = '2026-03-01T09:00:00.000Z') =>
      write(
        `INSERT INTO _order_acks (order_id, branch, acked_at, source) VALUES ('${orderId}', '', '${at}', 'http')`,
      ),
    write,
    noted: () =>
      rowsIn<{ value: number }>(
        path.join(storage, 'mirror.db'),
        "SELECT value FROM marks WHERE name = 'backup.noted'",
      ),
    toBook: () =>
      rowsIn<{ id: string }>(
        path.join(storage, 'inbox/inbox.db'),
        'SELECT order_id AS id FROM order_acks ORDER BY 1',
      ).map(({ id }) => id),
  };
}

it('what the POS acknowledged since the backup is known after a restore from the directory', async () => {
  const { storage, backups, at, order, acknowledge, write, json, toBook, noted } = store();
  await order(1);
  await acknowledge('before', '2026-03-01T07:00:00.000Z');
  expect((await json(['backup', at(WHOLE)])).code).toBe(0);
  await acknowledge('booked');
  await write(
    `INSERT INTO _audit (at, who, action) VALUES ('2026-03-01T09:00:00.000Z', 'cli ana', 'outbox.discard')`,
  );
  await order(2);
  const made = await json(['backup', at(DIFFERENTIAL), '--since', SINCE]);
  expect(made.document).toMatchObject({ file: at(DIFFERENTIAL), acks: 1, unsent: 0, isEncrypted: false });
  rmSync(storage, { recursive: true });
  const checked = await json(['restore', backups, '--check']);
  expect(checked.document.differentials).toMatchObject([{ name: DIFFERENTIAL }]);
  const { code, document } = await json(['restore', backups]);
  expect([code, document.acks, document.knownUntil]).toEqual([0, 1, made.document.createdAt]);
  expect(document.continuesAfterSeq).toBe(1_000_002);
  expect(toBook()).toEqual(['booked']);
  expect(noted()[0]?.value).toBeGreaterThan(Date.UTC(2026, 3, 1));
});

it('a second machine that is lost too gives no number of the feed again', async () => {
  const { storage, backups, at, order, acknowledge, json, toBook } = store();
  await order(1);
  await json(['backup', at(WHOLE)]);
  await acknowledge('first');
  await json(['backup', at(DIFFERENTIAL), '--since', SINCE]);
  rmSync(storage, { recursive: true });
  await json(['restore', backups]);
  await order(2);
  await acknowledge('second', '2026-03-02T09:00:00.000Z');
  await json(['backup', at('tillsync-till-20260302T080000Z.differential.tar.gz'), '--since', SINCE]);
  rmSync(storage, { recursive: true });
  const { document } = await json(['restore', backups]);
  expect(document.continuesAfterSeq).toBe(2_000_002);
  expect(toBook()).toEqual(['first', 'second']);
});

it('changes without an answer are kept for a person, once', async () => {
  const { storage, backups, at, order, write, json } = store();
  await order(1);
  await json(['backup', at(WHOLE)]);
  await write(`INSERT INTO _outbox (change_id, kind, target, conflict_key, body, fields, state, created_at, priority,
      queue_seq, basis, source, version)
    VALUES (1, 'stock', 'a', 'a', '{"sku":"a","qty":3}', 'qty', 'pending', '2999-03-01T09:00:00.000Z', 1, 1, 'mirror', 'http', 1)`);
  await json(['backup', at(DIFFERENTIAL), '--since', SINCE]);
  // The mirror that is replaced has the same change as the differential backup.
  const { document } = await json(['restore', backups]);
  expect(document.changes).toHaveLength(1);
  expect(readFileSync(document.changes[0].path, 'utf8')).toBe('{"sku":"a","qty":3}\n');
  expect(document.feedJumped).toBe(false);
  expect(existsSync(storage)).toBe(true);
});

it('what is kept for a person has each article once, as the POS handed it over, and push takes it', async () => {
  const { backups, at, order, write, json } = store();
  await order(1);
  await json(['backup', at(WHOLE)]);
  let id = 0;
  const handOver = (kind: string, body: object, { sku = '', named = '', countedAt = '' } = {}) => {
    id += 1;
    return write(`DELETE FROM _outbox WHERE kind = '${kind}' AND target = '${named || sku}';
      INSERT INTO _outbox (change_id, kind, target, conflict_key, body, fields, state, created_at, priority, queue_seq,
        basis, source, version, sku, named, counted_at)
      VALUES (${id}, '${kind}', '${named || sku}', '', '${JSON.stringify(body)}', 'qty', 'pending',
        '2999-03-01T09:00:0${id}.000Z', 1, ${id}, 'mirror', 'http', ${id}, nullif('${sku}', ''), nullif('${named}', ''),
        nullif('${countedAt}', ''))`);
  };
  const [early, late] = [600_000, 300_000].map((age) => new Date(Date.now() - age).toISOString());
  const byId = { sku: '10', named: '{"externalId":"A"}' };
  await handOver('stock', { externalId: 'A', qty: 3, show: true }, { ...byId, countedAt: late });
  await handOver('stock', { externalId: 'B', subsidiaryId: 's1', qty: 7 }, { sku: '11' });
  await handOver('product', { sku: 10, price: 5, name: 'Tea' }, { sku: '10' });
  await json(['backup', at(DIFFERENTIAL), '--since', SINCE]);
  // Handed over later, but counted earlier.
  await handOver('stock', { externalId: 'A', qty: 4, show: false }, { ...byId, countedAt: early });
  await handOver('product', { sku: 10, price: 6 }, { sku: '10' });
  const { document } = await json(['restore', backups]);
  const [stock, products] = document.changes.map(({ path: file }: { path: string }) =>
    readFileSync(file, 'utf8')
      .split('\n')
      .filter(Boolean)
      .map((line) => JSON.parse(line)),
  );
  expect(stock).toEqual([
    { sku: '11', subsidiaryId: 's1', qty: 7 },
    { externalId: 'A', qty: 3, show: false, counted_at: late },
  ]);
  expect(products).toEqual([
    { sku: 10, name: 'Tea' },
    { sku: 10, price: 6 },
  ]);
  for (const { kind, path: file } of document.changes) {
    const pushed = await json(['push', kind, file]);
    expect([kind, pushed.code]).toEqual([kind, 0]);
  }
});

it('one that is cut, for another phrase or of another shop is refused by name, and what is here stays', async () => {
  const mine = await newRecoveryPhrase('en');
  const other = await newRecoveryPhrase('es');
  const { storage, backups, at, order, acknowledge, json, run } = store(mine.recipient);
  await order(1);
  keepSigningKey(storage, mine.signingKey);
  await json(['backup', at(WHOLE)]);
  await acknowledge('booked');
  const mirror = readFileSync(path.join(storage, 'mirror.db'));
  const refusal = async (phrase = mine.phrase) => {
    const { code, stderr } = await run(['restore', backups, '--phrase'], phrase);
    expect(code).not.toBe(0);
    expect(stderr).toContain('Nothing was changed.');
    expect(readFileSync(path.join(storage, 'mirror.db')).equals(mirror)).toBe(true);
    return stderr;
  };
  const differential = at(`${DIFFERENTIAL}.age`);
  await json(['backup', at(DIFFERENTIAL), '--since', SINCE]);
  const whole = readFileSync(differential);
  expect(whole.includes('booked')).toBe(false);
  expect(await refusal(other.phrase)).toContain(`This phrase does not open ${at(`${WHOLE}.age`)}`);
  truncateSync(differential, whole.length - 20);
  expect(await refusal()).toContain(`${differential} cannot be used`);

  const foreign = store(other.recipient);
  await foreign.order(2);
  await foreign.json(['backup', foreign.at(DIFFERENTIAL), '--since', SINCE]);
  renameSync(foreign.at(`${DIFFERENTIAL}.age`), differential);
  expect(await refusal()).toContain(`This phrase does not open ${differential}`);

  for (const platform of ['https://platform.test', 'https://other.test']) {
    const alike = store(mine.recipient, platform);
    await alike.order(2);
    keepSigningKey(alike.storage, mine.signingKey);
    await alike.json(['backup', alike.at(DIFFERENTIAL), '--since', '2999-01-01']);
    renameSync(alike.at(`${DIFFERENTIAL}.age`), differential);
    expect(await refusal()).toContain(`${DIFFERENTIAL}.age is of another shop`);
  }
  expect((await run(['restore', backups])).stderr).toContain(`restore ${at(`${WHOLE}.age`)} --phrase`);
});

it('the address of the platform may change between a backup and its differential one', async () => {
  const { storage, backups, at, order, acknowledge, callAt, json, toBook } = store();
  await order(1);
  await json(['backup', at(WHOLE)]);
  callAt('https://moved.test');
  await acknowledge('booked');
  await json(['backup', at(DIFFERENTIAL), '--since', SINCE]);
  rmSync(storage, { recursive: true });
  expect((await json(['restore', backups])).code).toBe(0);
  expect(toBook()).toEqual(['booked']);
});

it('where two backups have no event in common, the address of the platform says whose they are', async () => {
  const { backups, at, acknowledge, json, run } = store();
  await acknowledge('before', '2026-03-01T07:00:00.000Z');
  await json(['backup', at(WHOLE)]);
  for (const [platform, code] of [
    ['https://platform.test', 0],
    ['https://other.test', 2],
  ] as const) {
    const alike = store('', platform);
    await alike.acknowledge('booked');
    await alike.json(['backup', alike.at(DIFFERENTIAL), '--since', SINCE]);
    renameSync(alike.at(DIFFERENTIAL), at(DIFFERENTIAL));
    expect((await run(['restore', backups])).code).toBe(code);
  }
});

it('a directory without a backup, or with those of several shops, is refused', async () => {
  const { backups, at, run } = store();
  expect((await run(['restore', backups])).stderr).toContain(`There is no backup in ${backups}`);
  for (const name of [WHOLE, 'tillsync-bar-20260301T080000Z.tar.gz']) writeFileSync(at(name), '');
  const { code, stderr } = await run(['restore', backups]);
  expect([code, stderr]).toEqual([
    2,
    expect.stringContaining(`tillsync-bar-20260301T080000Z.tar.gz, ${at(WHOLE)}`),
  ]);
});
