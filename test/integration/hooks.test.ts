import { appendFileSync, chmodSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import Database from 'better-sqlite3';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { systemClock } from '../../src/core/system-clock.ts';
import type { HookEvent, RejectedChangeEvent } from '../../src/hooks/hook.ts';
import { percentile } from '../bench/mirror-samples.ts';
import { type EventReceiver, eventReceiver } from '../hooks/event-receiver.ts';
import { limitMs } from '../support/shared-config.ts';
import { openWorkplace, until, type Workplace } from '../support/workplace.ts';

let place: Workplace;
let receiver: EventReceiver;

beforeEach(async () => {
  place = await openWorkplace(47);
  receiver = await eventReceiver();
});
afterEach(() => place.close());

function addHook(text: string): void {
  appendFileSync(place.configFile, `\n[[hooks]]\n${text}\n`);
}

interface ListedHook {
  name: string;
  seq: number | null;
  waiting: number;
  isMore: boolean;
  failures: number;
  lastFailure: string | null;
}

async function listed(): Promise<ListedHook[]> {
  const { stdout } = await place.command('hooks', 'list', '--json');
  return (JSON.parse(stdout) as { hooks: ListedHook[] }).hooks;
}

/** Starts a tillsync whose hook has begun, so that earlier orders are not sent to the hook. */
async function running() {
  const daemon = await place.run();
  await until('the hook has begun', async () => (await listed())[0]?.seq != null);
  return daemon;
}

const codes = () => receiver.received.map(({ event }) => event.order?.code);

describe('hooks of a real tillsync', () => {
  it('lose and reorder nothing over kills, whatever the moment', async () => {
    addHook(`name = "pos"\nurl = "${receiver.url}"\nfrom = "start"`);
    for (let life = 0; life < 6; life++) {
      const daemon = await place.run();
      const before = receiver.received.length;
      // Some processes end during an answer, others between the answer and saving the cursor.
      receiver.answer = (response) =>
        void setTimeout(() => response.writeHead(200).end(), life % 2 === 0 ? 40 : 0);
      for (let n = 0; n < 5; n++) place.sandbox.control.createOrder({ status: 'pending' });
      await until('some have come', () => receiver.received.length >= before + 3);
      await daemon.end('SIGKILL');
    }
    receiver.answer = 200;
    const daemon = await place.run();
    await until('nothing waits', async () => (await listed())[0]?.waiting === 0);
    await until('all have come', () => new Set(codes()).size === 30);
    // Only the last events of a process come again, always in order, and none is missing.
    const first = [...new Set(receiver.seqs())];
    expect(first).toEqual([...first].sort((a, b) => a - b));
    expect(first).toHaveLength(place.mirrorRows().length);
    expect(receiver.received.length - first.length).toBeLessThan(6 * 12);
    expect(await daemon.end('SIGTERM')).toBe(0);
  });

  it('lose and reorder no rejected change over kills, beside orders', async () => {
    addHook(`name = "pos"\nurl = "${receiver.url}"\nfrom = "start"\nevents = ["order", "change.rejected"]`);
    const ofChanges = () =>
      receiver.received.flatMap(({ body }) => {
        const { seq, change } = JSON.parse(body) as Partial<RejectedChangeEvent>;
        return change ? [{ seq, reference: change.reference }] : [];
      });
    const post = (localUrl: string, items: object[]) =>
      fetch(`${localUrl}/v1/stock`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(items),
      });
    for (let life = 0; life < 4; life++) {
      const daemon = await place.run();
      const before = ofChanges().length;
      receiver.answer = (response) =>
        void setTimeout(() => response.writeHead(200).end(), life % 2 === 0 ? 40 : 0);
      place.sandbox.control.createOrder({ status: 'pending' });
      const items = [1, 2, 3, 4, 5].map((n) => ({
        externalId: 'A-1001-1',
        subsidiaryId: `nowhere-${life}-${n}`,
        qty: n,
        reference: `${life}/${n}`,
      }));
      expect((await post(String(daemon.localUrl), items)).ok).toBe(true);
      await until('some have come', () => ofChanges().length >= before + 2);
      await daemon.end('SIGKILL');
    }
    receiver.answer = 200;
    const daemon = await place.run();
    await until('all have come', () => new Set(ofChanges().map(({ reference }) => reference)).size === 20);
    await until('nothing waits', async () => (await listed()).every(({ waiting }) => waiting === 0));
    const first = [...new Set(ofChanges().map(({ seq }) => seq))];
    expect(first).toEqual(Array.from({ length: 20 }, (_, i) => i + 1));
    expect(new Set(codes().filter((code) => code !== undefined)).size).toBe(4);
    expect(receiver.openMax).toBe(1);
    expect(await daemon.end('SIGTERM')).toBe(0);
  });

  it('run a program, whose words are in the log without the customer', async () => {
    const program = path.join(place.directory, 'program');
    const seen = path.join(place.directory, 'seen');
    const fails = path.join(place.directory, 'fails');
    // The program prints the whole order with the customer's name, as a careless program does.
    writeFileSync(
      program,
      `#!/bin/sh
event=$(cat)
[ -e ${fails} ] && { echo "cannot print: $event" >&2; exit 1; }
echo "$event" >> ${seen}
env > ${seen}.env
`,
    );
    chmodSync(program, 0o755);
    writeFileSync(fails, '');
    addHook(`name = "printer"\ncommand = ["${program}"]`);
    const daemon = await running();
    const order = place.sandbox.control.createOrder({ status: 'pending' });
    await until('it has failed', async () => ((await listed())[0]?.failures ?? 0) > 0);
    const [failing] = await listed();
    expect(failing?.lastFailure).toMatch(/^the program ended with 1: .*\[customer\]/);
    const { lastName, email } = order.user;
    for (const text of [failing?.lastFailure ?? '', daemon.log()]) {
      expect(text).not.toContain(lastName);
      expect(text).not.toContain(email);
    }
    const events = () => {
      try {
        const lines = readFileSync(seen, 'utf8').trim().split('\n');
        return lines.map((line) => JSON.parse(line) as HookEvent);
      } catch {
        return [];
      }
    };
    writeFileSync(program, readFileSync(program, 'utf8').replace(fails, '/nowhere'));
    await until('it has printed', () => events().length > 0, 20_000);
    expect(events()[0]?.orderId).toBe(order.internalOrderId);
    const environment = readFileSync(`${seen}.env`, 'utf8');
    expect(environment).not.toContain(place.refreshToken);
    expect(environment).not.toContain('TILLSYNC_REFRESH_TOKEN');
    expect(await daemon.end('SIGTERM')).toBe(0);
  });

  it('are tested, listed and skipped by commands', async () => {
    addHook(`name = "pos"\nurl = "${receiver.url}?key=hidden"\nstatuses = ["pending"]`);
    const alone = await place.command('hooks', 'test', 'pos', '--json');
    expect(alone.code).toBe(0);
    expect(JSON.parse(alone.stdout)).toMatchObject({ ok: true, by: 'command' });
    expect(receiver.received.at(-1)?.event).toMatchObject({ seq: 0, test: true, source: 'test' });
    expect((await place.command('hooks', 'skip', 'pos')).code).toBe(1);

    const daemon = await running();
    const order = place.sandbox.control.createOrder({ status: 'pending' });
    await until('it has come', () => codes().includes(order.code));
    receiver.answer = (response) => response.writeHead(422).end('no such till');
    const tested = await place.command('hooks', 'test', 'pos', '--order', String(order.code));
    expect(tested.code).toBe(1);
    expect(tested.stdout).toContain('answered 422');
    expect(tested.stdout).toContain('no such till');
    expect(tested.stderr).toContain('The running tillsync sent it');
    expect(receiver.received.at(-1)?.event).toMatchObject({ test: true, order: { code: order.code } });
    expect((await place.command('hooks', 'test', 'nobody')).stderr).toContain('there are: pos');

    const next = place.sandbox.control.createOrder({ status: 'pending' });
    await until('it was refused', async () => ((await listed())[0]?.failures ?? 0) > 0);
    const list = await place.command('hooks', 'list');
    expect(list.stdout).toMatch(/pos +http:\/\/127\.0\.0\.1:\d+ .*answered 422: no such till/);
    expect(list.stdout).not.toContain('hidden');
    expect(await place.command('doctor', '--only', 'hooks', '--offline', '--json')).toMatchObject({
      stdout: expect.stringContaining('pos failed last'),
    });
    expect((await place.command('hooks', 'skip', 'pos', '--to', '99999999')).code).toBe(2);
    const skipped = await place.command('hooks', 'skip', 'pos', '--json');
    expect(JSON.parse(skipped.stdout)).toMatchObject({ hook: 'pos', skipped: 1 });
    expect((await place.command('audit')).stdout).toMatch(/hooks\.skip +pos +1 event passed over/);
    receiver.answer = 200;
    const last = place.sandbox.control.createOrder({ status: 'pending' });
    await until('it goes on', () => codes().includes(last.code));
    expect(codes().filter((code) => code === next.code)).not.toHaveLength(0);
    const metrics = await (await fetch(`${daemon.localUrl}/metrics`)).text();
    expect(metrics).toMatch(/tillsync_hook_tries_total\{hook="pos",outcome="failed"\} [1-9]/);
    expect(metrics).toContain('tillsync_hook_waiting_events{hook="pos"} 0');
    expect(await daemon.end('SIGTERM')).toBe(0);
  });

  it('let tillsync end in time while a receiver holds an answer back', async () => {
    addHook(`name = "pos"\nurl = "${receiver.url}"\ntimeout = "5m"`);
    receiver.answer = () => {};
    const daemon = await running();
    place.sandbox.control.createOrder({ status: 'pending' });
    await until('it has come', () => receiver.received.length === 1);
    const startMs = performance.now();
    expect(await daemon.end('SIGTERM')).toBe(0);
    expect(performance.now() - startMs).toBeLessThan(limitMs(9_500));
    receiver.answer = 200;
    const next = await place.run();
    await until('it comes again', () => receiver.received.length === 2);
    expect(receiver.seqs()[0]).toBe(receiver.seqs()[1]);
    await next.end('SIGTERM');
  });
});

describe('100,000 events that wait', () => {
  it('cost no memory, and are caught up with while callbacks are answered', {
    timeout: limitMs(300_000),
  }, async () => {
    const first = await place.run();
    for (let n = 0; n < 20; n++) place.sandbox.control.createOrder({ status: 'pending' });
    await until('the orders are there', () => place.mirrorRows().length >= 20);
    await until('memory has settled', async () => residentMib(first.child.pid) > 0);
    const idleMib = residentMib(first.child.pid);
    await first.end('SIGTERM');
    const db = new Database(path.join(place.storage, 'mirror.db'));
    db.exec(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ${WAITING / 20})
      INSERT INTO order_events (order_id, status, previous_status, source, observed_at)
      SELECT order_id, 'ready', 'pending', 'webhook', '2026-01-01T00:00:00.000Z'
      FROM n, (SELECT order_id FROM orders LIMIT 20)`);
    db.close();

    addHook(`name = "pos"\nurl = "${receiver.url}"\nfrom = "start"`);
    let [taken, newest] = [0, 0];
    const busyMib: number[] = [];
    receiver.answer = 503;
    const daemon = await running();
    await until('it has failed', async () => ((await listed())[0]?.failures ?? 0) > 0, 60_000);
    const waitingMib = residentMib(daemon.child.pid);
    expect((await listed())[0]).toMatchObject({ waiting: 10_000, isMore: true });
    receiver.answer = (response, { seq }) => {
      receiver.received.length = 0;
      taken += 1;
      if (seq <= newest) throw new Error(`${seq} came after ${newest}`);
      newest = seq;
      response.writeHead(200).end();
    };
    await until('it goes on', () => taken > 0, 70_000);
    const startMs = performance.now();
    const callbackMs: number[] = [];
    while (taken < CAUGHT_UP) {
      expect(performance.now() - startMs, `${taken} of ${CAUGHT_UP} taken`).toBeLessThan(limitMs(200_000));
      const beginMs = performance.now();
      expect((await fetch(`${daemon.localUrl}/v1/orders?after=newest`)).status).toBe(200);
      callbackMs.push(performance.now() - beginMs);
      busyMib.push(residentMib(daemon.child.pid));
      await systemClock.sleep(100);
    }
    const seconds = (performance.now() - startMs) / 1_000;
    const p99Ms = percentile(callbackMs, 0.99);
    console.info(
      `${Math.round(taken / seconds)} events a second; resident: idle ${idleMib} MiB, waiting ${waitingMib}, ${part(busyMib, 1)} and then ${part(busyMib, 2)} while it sends; API p99 ${Math.round(p99Ms)} ms`,
    );
    // All events with their orders would take 200 MiB of memory; the ledger follows the events in parts too.
    expect(waitingMib - idleMib).toBeLessThan(100);
    // At full speed, garbage is collected late, so memory may grow for a while, but not in proportion to the events.
    expect(part(busyMib, 2)).toBeLessThan(1.4 * part(busyMib, 1));
    expect(Math.max(...busyMib)).toBeLessThan(512);
    expect(p99Ms).toBeLessThan(limitMs(250));
    await daemon.end('SIGTERM');
    expect((await listed())[0]?.seq).toBe(newest);
  });
});

const WAITING = 100_000;
const CAUGHT_UP = 20_000;

/** Returns the median of one third of the samples. */
function part(samples: readonly number[], third: number): number {
  const length = Math.floor(samples.length / 3);
  return percentile(samples.slice(third * length, (third + 1) * length), 0.5);
}

function residentMib(pid: number | undefined): number {
  const [, kib] = /^VmRSS:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8')) ?? [];
  return Math.round(Number(kib) / 1024);
}
