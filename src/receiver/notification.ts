import { isUtf8 } from 'node:buffer';
import type { OrderReading } from '../domain/order/order.ts';
import type { IntakeEntry } from '../domain/order/order-intake.ts';

/**
 * Finds the order in a notification's JSON, or says in one sentence what is missing. `raw` is the text that
 * `value` was parsed from, for numbers too long for JavaScript.
 */
export type NotificationReader = (value: unknown, raw: string) => OrderReading | { unreadable: string };

export interface Notification {
  entry: IntakeEntry;
  /** False: the body is no JSON text at all, which only a sender's mistake explains. */
  isJson: boolean;
}

const BYTE_ORDER_MARK = '\u{FEFF}';

/**
 * What an authenticated body becomes: an order, or input for quarantine. Never throws, whatever the bytes.
 * Keys such as `__proto__` are data like any other: JSON.parse makes own properties of them.
 */
export function readNotification(
  body: Buffer,
  options: { read: NotificationReader; receivedAtMs: number },
): Notification {
  const { read, receivedAtMs } = options;
  const unreadable = (reason: string, payload: string | Uint8Array, isJson: boolean): Notification => ({
    entry: { kind: 'unreadable', unreadable: { source: 'webhook', receivedAtMs, reason, payload } },
    isJson,
  });

  if (!isUtf8(body)) return unreadable('The body is not UTF-8 text.', body, false);
  const raw = body.toString('utf8');
  const json = raw.startsWith(BYTE_ORDER_MARK) ? raw.slice(1) : raw;
  let value: unknown;
  try {
    value = JSON.parse(json);
  } catch {
    return unreadable(raw === '' ? 'The body is empty.' : 'The body is not JSON.', raw, false);
  }
  try {
    const reading = read(value, json);
    if ('unreadable' in reading) return unreadable(reading.unreadable, raw, true);
    const observation = { source: 'webhook' as const, observedAtMs: receivedAtMs, raw: json, reading };
    return { entry: { kind: 'order', observation }, isJson: true };
  } catch (error) {
    // Nesting beyond the stack, or a shape nobody thought of: kept whole like any other unknown shape.
    const why = error instanceof Error ? error.name : 'unknown error';
    return unreadable(`The notification could not be taken apart (${why}).`, raw, true);
  }
}
