import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import { openMirror } from '../../src/app/mirror.ts';
import { compileSpellings } from '../../src/orders/merging/field-aliases.ts';
import type {
  ImportReport,
  OrderObservation,
  OrderReading,
  OrderSource,
} from '../../src/orders/merging/order.ts';
import { readOrder } from '../../src/orders/merging/order-reader.ts';
import type { Mirror } from '../../src/orders/reading/mirror.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { freshMirror } from '../support/fresh-mirror.ts';
import { sampleNotification } from '../support/order-samples.ts';

type MirrorOptions = Parameters<typeof openMirror>[0];

export interface TestMirror {
  mirror: Mirror;
  clock: FakeClock;
  path: string;
}

export function temporaryDirectory(): string {
  const directory = mkdtempSync(join(tmpdir(), 'tillsync-mirror-'));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  return directory;
}

/**
 * Opens a mirror, by default a new one in a directory of its own. When the test ends, the mirror is closed and that
 * directory is deleted.
 */
export function openTestMirror(options: Partial<MirrorOptions> = {}): TestMirror {
  const clock = new FakeClock();
  const path = options.path ?? freshMirror(join(temporaryDirectory(), 'data'));
  const mirror = openMirror({ path, clock, ...options });
  onTestFinished(() => mirror.close());
  return { mirror, clock, path };
}

/** Starts another process, which holds a read transaction on the mirror until `end` is called. */
export async function readerProcess(
  path: string,
): Promise<{ pid: number | undefined; end: () => Promise<void> }> {
  const database = new URL('../../node_modules/better-sqlite3', import.meta.url).pathname;
  const program = `
    const db = new (require(${JSON.stringify(database)}))(${JSON.stringify(path)}, { readonly: true });
    db.exec('BEGIN'); db.prepare('SELECT count(*) FROM orders').get();
    console.log('reading'); setInterval(() => {}, 1000);`;
  const reader = spawn(process.execPath, ['-e', program], { stdio: ['ignore', 'pipe', 'inherit'] });
  onTestFinished(() => void reader.kill('SIGKILL'));
  await once(reader.stdout, 'data');
  const end = async () => {
    const ended = once(reader, 'exit');
    reader.kill('SIGKILL');
    await ended;
  };
  return { pid: reader.pid, end };
}

export interface HeldNotification {
  status: string | null;
  knownStatus: string | null;
  receivedAt: string;
  resolvedAt: string | null;
  resolution: 'confirmed' | 'refuted' | 'believed' | null;
  payload: string;
}

/** Returns the webhooks that are or were held, newest first. */
export function heldNotifications(mirror: Mirror, orderId?: string): HeldNotification[] {
  const sql = `SELECT held_id AS heldId, order_id AS orderId, status, known_status AS knownStatus,
      received_at AS receivedAt, resolved_at AS resolvedAt, resolution, payload
    FROM _held_notifications WHERE order_id = coalesce(?, order_id) ORDER BY held_id DESC`;
  return mirror.read((db) => db.prepare<[unknown], HeldNotification>(sql).all(orderId ?? null));
}

const spellings = compileSpellings();
export const OBSERVED_MS = Date.UTC(2026, 0, 15, 12);

export function observation(
  source: OrderSource,
  sent: Record<string, unknown>,
  extra: Partial<OrderObservation> = {},
): OrderObservation {
  const reading = readOrder(sent, spellings, source) as OrderReading;
  return { source, observedAtMs: OBSERVED_MS, raw: JSON.stringify(sent), reading, ...extra };
}

/** Stores notifications as webhooks, each in one transaction. Returns the outcomes. */
export async function receive(mirror: Mirror, ...sent: Record<string, unknown>[]): Promise<string[]> {
  const outcomes: string[] = [];
  for (const each of sent) {
    outcomes.push(...(await mirror.save([{ kind: 'order', observation: observation('webhook', each) }])));
  }
  return outcomes;
}

/** Returns the marks of a poll that is requested now, as `poll` takes them. */
export function askedNow({ orders }: Mirror): [asOfSeq: number, asOfHeldId: number] {
  return [orders.newestSeq(), orders.newestHeldId()];
}

/** Mirrors a poll's answer with these records, as if requested now. */
export function poll(
  mirror: Mirror,
  records: unknown[],
  asOfSeq = mirror.orders.newestSeq(),
  asOfHeldId = mirror.orders.newestHeldId(),
): Promise<ImportReport> {
  return importJson(mirror, { success: true, data: records }, asOfSeq, asOfHeldId);
}

export function importJson(
  mirror: Mirror,
  answer: unknown,
  asOfSeq = mirror.orders.newestSeq(),
  asOfHeldId = mirror.orders.newestHeldId(),
): Promise<ImportReport> {
  const body = new Uint8Array(Buffer.from(typeof answer === 'string' ? answer : JSON.stringify(answer)));
  return mirror.importAnswer(body, { observedAtMs: OBSERVED_MS + 60_000, asOfSeq, asOfHeldId });
}

export { sampleNotification };
