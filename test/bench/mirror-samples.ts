import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { isoUtc } from '../../src/core/time.ts';
import { compileSpellings } from '../../src/orders/merging/field-aliases.ts';
import type { IncomingEntry, OrderReading } from '../../src/orders/merging/order.ts';
import { readOrderText } from '../../src/orders/merging/order-reader.ts';
import { sampleNotification } from '../support/order-samples.ts';

/** Size of an order's JSON in bytes, as in the measurements from which the bounds were set. */
const ORDER_BYTES = 1930;

/** Makes an order with three items. Orders differ only by `status`, `number` and what depends on the number. */
export function benchOrder(number: number, status = 'inProcess'): Record<string, unknown> {
  const createdAt = isoUtc(Date.UTC(2026, 0, 1) + number * 60_000);
  const order = sampleNotification(number, { status, createdAt, note: '' });
  order.note = 'x'.repeat(Math.max(0, ORDER_BYTES - JSON.stringify(order).length));
  return order;
}

/** Makes an answer of GET /order/all with `count` orders. */
export function benchAnswer(count: number): Uint8Array {
  const parts: string[] = ['{"success":true,"data":['];
  for (let i = 0; i < count; i++) parts.push(i > 0 ? ',' : '', JSON.stringify(benchOrder(i)));
  parts.push(']}');
  return new Uint8Array(Buffer.from(parts.join('')));
}

export function percentile(values: readonly number[], share: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN;
}

const spellings = compileSpellings();

/** Makes the entry for an order that arrives by webhook, read from the text as in the receiver. */
export function benchEntry(number: number, status?: string): IncomingEntry {
  const raw = JSON.stringify(benchOrder(number, status));
  const reading = readOrderText(raw, spellings) as OrderReading;
  return {
    kind: 'order',
    observation: { source: 'webhook', observedAtMs: Date.UTC(2026, 5, 1), raw, reading },
  };
}

/** Runs the action with its own directory, which is deleted afterwards. */
export async function inDirectory<T>(action: (directory: string) => Promise<T>): Promise<T> {
  const directory = mkdtempSync(join(tmpdir(), 'tillsync-bench-'));
  try {
    return await action(directory);
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}
