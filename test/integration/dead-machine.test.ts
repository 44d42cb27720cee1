/** Tests src/daemon/differentials.ts and src/support/restore.ts: machines that die, and what the next one knows. */

import { appendFileSync, mkdirSync, readdirSync, rmSync, statSync } from 'node:fs';
import { hostname } from 'node:os';
import path from 'node:path';
import Database from 'better-sqlite3';
import { expect, it } from 'vitest';
import { stampMs, stampOf } from '../../src/core/files.ts';
import { systemClock } from '../../src/core/system-clock.ts';
import { noteBackup } from '../../src/support/backup-files.ts';
import { newRecoveryPhrase } from '../../src/support/recovery-phrase.ts';
import { seededRandom } from '../support/fake-clock.ts';
import { limitMs } from '../support/shared-config.ts';
import { keepSigningKey } from '../support/signing-key.ts';
import { openWorkplace, runCommand, until, type Workplace } from '../support/workplace.ts';

const SEED = Number(process.env.TILLSYNC_SEED ?? 1);
/** Number of machines that die. Each is restored from the backups of the machines before it. */
const DEATHS = Number(process.env.TILLSYNC_RESTORES ?? 3);
/** Interval of differential backups, a thirtieth of that in a shop. */
const EVERY = '1s';
/** Maximum age of the newest differential backup at a death: `EVERY`, and twice the duration of the backup command. */
const AGE_AT_MOST_MS = limitMs(10_000);
const SKU = 1001;
/**
 * Step by which counts rise. It is far more than orders subtract, so that an older count can be recognised on the
 * platform.
 */
const COUNT_STEP = 1_000;

interface Given {
  orderId: string;
  atMs: number;
}

/** A POS that acknowledges orders, hands over rising counts of one article, and remembers what the machine accepted. */
class Pos {
  readonly acks: Given[] = [];
  counted = 0;
  readonly #place: Workplace;

  constructor(place: Workplace) {
    this.#place = place;
  }

  /** Works until the machine does not answer any more. */
  async work(url: string, random: { next(): number }): Promise<void> {
    const { control } = this.#place.sandbox;
    for (;;) {
      if (random.next() < 0.6) control.createOrder();
      const rows = this.#toBook();
      const orderId = rows[Math.floor(random.next() * rows.length)];
      if (orderId !== undefined && (await this.#post(`${url}/v1/orders/ack`, [orderId]))) {
        this.acks.push({ orderId, atMs: systemClock.nowMs() });
      }
      if (random.next() < 0.2) {
        const qty = this.counted + COUNT_STEP;
        const count = { externalId: `A-${SKU}-1`, qty };
        if ((await this.#post(`${url}/v1/stock`, [count])) === undefined) return;
        this.counted = qty;
      }
      if ((await this.#get(`${url}/healthz`)) === undefined) return;
      await systemClock.sleep(20 + random.next() * 60);
    }
  }

  #toBook(): string[] {
    try {
      return ask<{ id: string }>(
        this.#place,
        'SELECT order_id AS id FROM orders WHERE order_id NOT IN (SELECT order_id FROM order_acks)',
      ).map(({ id }) => id);
    } catch {
      return [];
    }
  }

  async #get(url: string) {
    return await fetch(url).catch(() => undefined);
  }

  async #post(url: string, document: unknown): Promise<boolean | undefined> {
    const answer = await fetch(url, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(document),
    }).catch(() => undefined);
    await answer?.text().catch(() => undefined);
    return answer?.ok;
  }
}

function ask<T>({ storage }: Workplace, sql: string): T[] {
  const db = new Database(path.join(storage, 'mirror.db'), { readonly: true });
  try {
    return db.prepare<[], T>(sql).all();
  } finally {
    db.close();
  }
}

const ACKED = 'SELECT order_id AS id FROM order_acks';
const HIGHEST_SEQ = "SELECT seq FROM sqlite_sequence WHERE name = 'order_events'";

/** Makes a whole backup as the daemon does once a day, while the machine is off. */
async function wholeBackup(place: Workplace, backups: string): Promise<void> {
  const stamp = stampOf(systemClock.nowMs());
  const db = new Database(path.join(place.storage, 'mirror.db'));
  noteBackup(db, stampMs(stamp));
  db.close();
  const label = hostname()
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, '-');
  const made = await place.command('backup', path.join(backups, `tillsync-${label}-${stamp}.tar.gz`));
  expect(made.code, made.stderr).toBe(0);
}

it(
  `loses no acknowledgement that a differential backup has in ${DEATHS} deaths, sends no old count, and seq never goes back (seed ${SEED})`,
  async () => {
    const place = await openWorkplace(SEED);
    try {
      const { sandbox, storage, env } = place;
      const random = seededRandom(SEED);
      const { phrase, recipient, signingKey } = await newRecoveryPhrase('es');
      const backups = path.join(place.directory, 'backups');
      mkdirSync(backups);
      const settings = `[backup]\ndirectory = "${backups}"\nrecipient = "${recipient}"\ndifferential_every = "${EVERY}"\n`;
      appendFileSync(place.configFile, settings);
      const pos = new Pos(place);
      const first = await place.run();
      for (let i = 0; i < 10; i++) sandbox.control.createOrder();
      await until('mirror and platform are equal', () => place.differences().length === 0);
      expect(await first.end('SIGTERM')).toBe(0);
      keepSigningKey(storage, signingKey);
      await wholeBackup(place, backups);
      const [{ seq: baseSeq } = { seq: 0 }] = ask<{ seq: number }>(place, HIGHEST_SEQ);

      const figures = {
        deaths: DEATHS,
        acks: 0,
        lost: 0,
        oldestLostMs: 0,
        oldestBackupMs: 0,
        slowestRestoreMs: 0,
      };
      let died = { atMs: 0, knownUntilMs: 0, highestSeq: 0 };
      let highestSent = 0;
      for (let death = 0; death <= DEATHS; death++) {
        const bornMs = systemClock.nowMs();
        const machine = await place.run('setsid');
        const watch = setInterval(() => {
          const step = Math.round(Number(sandbox.control.stockOf(SKU, 'sub-1') ?? 0) / COUNT_STEP);
          expect.soft(step, 'an older count was sent').toBeGreaterThanOrEqual(highestSent);
          highestSent = Math.max(highestSent, step);
        }, 10);
        await until('the machine knows every order', () => place.differences().length === 0);
        const known = () => new Set(ask<{ id: string }>(place, ACKED).map(({ id }) => id));
        const isKept = ({ atMs }: Given) => atMs < died.knownUntilMs;
        const keptIds = pos.acks.filter(isKept).map(({ orderId }) => orderId);
        await until('what the POS acknowledged is known', () => keptIds.every((id) => known().has(id)));
        const there = known();
        const lost = pos.acks.filter(({ orderId }) => !there.has(orderId));
        for (const { atMs } of lost) {
          figures.oldestLostMs = Math.max(figures.oldestLostMs, died.atMs - atMs);
        }
        figures.lost += lost.length;
        for (const each of lost) pos.acks.splice(pos.acks.indexOf(each), 1);
        const again = ask<{ seq: number }>(place, 'SELECT seq FROM order_events').filter(
          ({ seq }) => seq > baseSeq && seq <= died.highestSeq,
        );
        expect(again, `numbers that machine ${death} gave again`).toEqual([]);
        if (death === DEATHS) {
          clearInterval(watch);
          expect(await machine.end('SIGTERM')).toBe(0);
          break;
        }
        const had = pos.acks.length;
        const working = pos.work(machine.localUrl, random);
        await systemClock.sleep(1_000 + random.next() * 4_000);
        // A slow machine may come to nothing in that time.
        await until('the POS has acknowledged something', () => pos.acks.length > had + 1);
        // One of this life: from an older one, the next machine would continue where this one began.
        await until('this machine has made a differential backup', () =>
          readdirSync(backups).some(
            (name) => name.includes('.differential.') && statSync(path.join(backups, name)).mtimeMs >= bornMs,
          ),
        );
        // The whole machine dies, with the command that may be writing a backup.
        process.kill(-(machine.child.pid ?? 0), 'SIGKILL');
        const atMs = systemClock.nowMs();
        await machine.end('SIGKILL');
        await working;
        clearInterval(watch);
        const [{ seq: highestSeq } = { seq: 0 }] = ask<{ seq: number }>(place, HIGHEST_SEQ);
        rmSync(storage, { recursive: true });
        env.TILLSYNC_REFRESH_TOKEN = sandbox.issueTokens().refreshToken;
        const words = ['restore', backups, '--phrase', '--json'];
        const beganMs = performance.now();
        const { code, stderr, stdout } = await runCommand(env, words, phrase);
        expect(code, stderr).toBe(0);
        const { continuesAfterSeq, knownUntil, manifest } = JSON.parse(stdout);
        expect(continuesAfterSeq).toBeGreaterThan(highestSeq);
        // A whole backup that was just made has no differential one yet.
        died = { atMs, knownUntilMs: Date.parse(knownUntil ?? manifest.createdAt), highestSeq };
        const ageMs = atMs - died.knownUntilMs;
        expect(ageMs).toBeLessThan(AGE_AT_MOST_MS);
        figures.oldestBackupMs = Math.max(figures.oldestBackupMs, ageMs);
        figures.slowestRestoreMs = Math.max(figures.slowestRestoreMs, performance.now() - beganMs);
      }
      figures.acks = pos.acks.length;
      process.stdout.write(`${JSON.stringify({ ...figures, highestSent })}\n`);
      expect(figures.acks).toBeGreaterThan(DEATHS);
      expect(highestSent).toBeGreaterThan(0);
      expect(figures.oldestLostMs).toBeLessThan(AGE_AT_MOST_MS);
      expect(sandbox.control.violations()).toEqual([]);
    } finally {
      await place.close();
    }
  },
  limitMs(60_000 + DEATHS * 30_000),
);
