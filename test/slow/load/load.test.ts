import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { systemClock } from '../../../src/core/system-clock.ts';
import type { PlatformLimits } from '../../../src/platform/platform.ts';
import { httpWebhookTransport, type WebhookTransport } from '../../../src/sandbox/webhook.ts';
import { percentile } from '../../bench/mirror-samples.ts';
import { type Child, outputOf, packagedProgram, startNode, stopChild } from '../../bench/packaged-program.ts';
import { rowsOf } from '../../faults/support/fault-place.ts';
import { seededRandom } from '../../support/fake-clock.ts';
import { SEED } from '../../support/seed.ts';
import { limitMs } from '../../support/shared-config.ts';
import { openWorkplace, until, type Workplace } from '../../support/workplace.ts';
import { BusyStore, HAND_OVER_ITEMS } from './busy-store.ts';
import { ProcessWatch } from './process-watch.ts';
import { StreamReader, startSqlReader } from './readers.ts';

const SECONDS = Number(process.env.TILLSYNC_LOAD_SECONDS ?? 30);
/** Limits as the platform's document states them. */
const TRUE_LIMITS: PlatformLimits = {
  endpointIntervalMs: 1_000,
  ordersIntervalMs: 120_000,
  windowMs: 300_000,
  requestsPerWindow: 1_000,
  ordersPerWindow: 100,
};
const WAL_MIB_MAX = 64;
/**
 * Largest allowed write-ahead log once no reader holds it, because tillsync truncates a larger one at its next write.
 */
const WAL_MIB_AT_REST = 16;
/** Allowed growth of resident memory, as a factor. It is strict only if the run is long enough for memory to settle. */
const RESIDENT_GROWTH_MAX = SECONDS >= 300 ? 1.1 : 1.3;

let place: Workplace;
let child: Child;
let localUrl: string;
let send: { send: WebhookTransport; close(): Promise<void> };
const callbackMs: number[] = [];

beforeAll(async () => {
  send = httpWebhookTransport();
  place = await openWorkplace(SEED, {
    limits: TRUE_LIMITS,
    seed: { products: 1_500 },
    webhookTransport: async (wanted) => {
      const startMs = performance.now();
      const status = await send.send(wanted);
      callbackMs.push(performance.now() - startMs);
      return status;
    },
  });
  const settings = readFileSync(place.configFile, 'utf8')
    .replace(/^poll = .*$/m, 'poll = "*/2 * * * *"')
    .replace('level = "debug"', 'level = "info"');
  writeFileSync(place.configFile, `${settings}[catalog]\npage_size = 1000\n`);
  mkdirSync(place.storage);
  const program = await packagedProgram(path.join(place.directory, 'program'));
  child = startNode([...program.args, 'run'], { ...program.environment, ...place.env });
  const text = await outputOf(child, /tillsync is running.*\n/);
  const running = text.split('\n').find((line) => line.includes('tillsync is running')) ?? '{}';
  ({ localUrl } = JSON.parse(running) as { localUrl: string });
  await until('the webhook is registered', () => place.sandbox.control.webhook()?.active === true);
  await until('both branches are swept', () => rowsOf(place, 'SELECT 1 FROM _sweeps').length === 2, 90_000);
});

afterAll(async () => {
  await stopChild(child);
  await place.close();
  await send.close();
});

it(
  `ten times the busiest store is kept up with for ${SECONDS} s (seed ${SEED})`,
  async () => {
    const { control } = place.sandbox;
    const mirror = path.join(place.storage, 'mirror.db');
    const store = new BusyStore({ control, random: seededRandom(SEED), localUrl, storage: place.storage });
    const watch = new ProcessWatch({ pid: child.pid ?? 0, mirror, localUrl });
    const readers = [startSqlReader(mirror, 100, 0), startSqlReader(mirror, 200, 5_000)];
    const stream = new StreamReader();
    await stream.start(localUrl);
    watch.start();
    const over = new AbortController();
    const startMs = performance.now();
    void systemClock.sleep(SECONDS * 1_000).then(() => over.abort());
    await store.run(over.signal);
    await control.settled();
    const newest = () => rowsOf<{ seq: number }>(place, 'SELECT max(seq) AS seq FROM order_events')[0]?.seq;
    await until('the stream has caught up', () => stream.newest === newest());
    const seen = await watch.end();
    const [quick, slow] = await Promise.all(readers.map((reader) => reader.end()));
    await stream.end();

    const waiting = () => rowsOf(place, "SELECT 1 FROM outbox WHERE state IN ('pending', 'sending') LIMIT 1");
    await until('all counts are at the platform', () => waiting().length === 0, 90_000);
    const tookSeconds = (performance.now() - startMs) / 1_000;
    const calls = control.calls('product.stock.batch').length;
    const deliveries = control.deliveries();
    const refused = deliveries.filter(({ tries }) => tries.length !== 1 || tries[0] !== 200);
    callbackMs.sort((a, b) => a - b);
    const ms = (value: number) => `${value.toFixed(1)} ms`;
    const { first, middle, last } = seen.residentMib;
    process.stdout.write(
      `${[
        `load of ${SECONDS} s: ${deliveries.length} callbacks (${(deliveries.length / SECONDS).toFixed(1)} a second), ${refused.length} refused`,
        `  answered in            p50 ${ms(percentile(callbackMs, 0.5))}, p99 ${ms(percentile(callbackMs, 0.99))}, worst ${ms(callbackMs.at(-1) ?? 0)}`,
        `  a POS by SQL           p50 ${ms(quick?.p50Ms ?? 0)}, p99 ${ms(quick?.p99Ms ?? 0)}, worst ${ms(quick?.maxMs ?? 0)}, ${quick?.looks} looks`,
        `  one that holds on      p99 ${ms(slow?.p99Ms ?? 0)}, ${slow?.looks} looks of 5 s`,
        `  events                 ${newest()} in the mirror, ${quick?.events} by SQL, ${stream.events} by stream`,
        `  resident memory        ${first.toFixed(0)}, ${middle.toFixed(0)}, ${last.toFixed(0)} MiB (thirds of the run)`,
        `  log of the mirror      at most ${seen.walMibMax.toFixed(1)} MiB, ${watch.walMib().toFixed(1)} MiB at the end`,
        `  open files             at most ${seen.openFilesMax}`,
        `  event loop             p99 ${ms(seen.loopP99Ms)}, longest gap ${ms(seen.loopGapMs)}`,
        `  stock                  ${store.handOvers} hand-overs of ${HAND_OVER_ITEMS} in ${calls} calls (ideal ${(store.handOvers * HAND_OVER_ITEMS) / 100}), done after ${tookSeconds.toFixed(0)} s`,
      ].join('\n')}\n`,
    );

    expect(refused).toEqual([]);
    expect(place.differences()).toEqual([]);
    expect(control.violations()).toEqual([]);
    expect(store.wrongShelves()).toEqual([]);
    expect(rowsOf(place, 'SELECT reason FROM quarantine')).toEqual([]);
    for (const reader of [quick, slow]) {
      expect(reader?.errors).toEqual([]);
      expect(reader?.disorder).toBe(0);
      expect(reader?.p99Ms).toBeLessThan(250);
    }
    expect(stream.events).toBe(newest());
    expect(stream.disorder).toBe(0);
    expect(quick?.events).toBe(newest());
    expect(last / middle).toBeLessThan(RESIDENT_GROWTH_MAX);
    expect(seen.walMibMax).toBeLessThanOrEqual(WAL_MIB_MAX);
    expect(seen.openFilesMax).toBeLessThan(600);
    await until('the log of the mirror is small again', () => watch.walMib() <= WAL_MIB_AT_REST, 130_000);
  },
  limitMs(7_200_000),
);
