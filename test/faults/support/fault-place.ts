import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { Agent, request } from 'undici';
import type { SandboxServerOptions } from '../../../src/sandbox/shop.ts';
import { rowsIn } from '../../support/rows.ts';
import { openWorkplace, SECRET, type Workplace } from '../../support/workplace.ts';

/** A schedule that never comes due in a test, so that orders are polled only at the start. */
const YEARLY = '0 0 1 1 *';

export interface FaultPlaceOptions {
  /** Schedule of the order polls; by default only at the start. */
  poll?: string;
  sandbox?: Partial<SandboxServerOptions>;
  /** Patterns in the configuration file and their replacements. */
  config?: [RegExp, string][];
}

/** Opens a workplace where nothing happens by itself after the start, so that a fault hits only what the test does. */
export async function openFaultPlace(options: FaultPlaceOptions = {}): Promise<Workplace> {
  const { poll = YEARLY, sandbox = {}, config = [] } = options;
  const place = await openWorkplace(29, sandbox);
  let text = readFileSync(place.configFile, 'utf8').replace(/^poll = .*$/m, `poll = "${poll}"`);
  for (const [found, instead] of config) {
    if (!found.test(text)) throw new Error(`The configuration has nothing like ${found}`);
    text = text.replace(found, instead);
  }
  writeFileSync(place.configFile, text);
  mkdirSync(place.storage);
  return place;
}

/**
 * Sends a callback on its own connection and returns the HTTP status of the answer; 'failed' without an answer,
 * 'refused' if nobody listened.
 */
export async function notify(
  place: Workplace,
  body: unknown,
  headers: Record<string, string | string[]> = { 'x-webhook-secret': SECRET },
): Promise<number | 'failed' | 'refused'> {
  const dispatcher = new Agent({ pipelining: 0 });
  try {
    const answer = await request(place.config.webhook.callbackUrl, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      body: typeof body === 'string' ? body : JSON.stringify(body),
      dispatcher,
    });
    await answer.body.dump();
    return answer.statusCode;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'ECONNREFUSED' ? 'refused' : 'failed';
  } finally {
    await dispatcher.destroy();
  }
}

/** Reads rows of a database in the storage directory, as any program could. */
export function rowsOf<T = Record<string, unknown>>(place: Workplace, sql: string, file = 'mirror.db'): T[] {
  return rowsIn(path.join(place.storage, file), sql);
}

/** Returns the result of SQLite's integrity check of a database in the storage directory. */
export function integrityOf(place: Workplace, file = 'mirror.db'): string {
  const [first] = rowsOf<{ integrity_check: string }>(place, 'PRAGMA integrity_check', file);
  return first?.integrity_check ?? 'nothing';
}

/** Returns when the subject last worked, ISO 8601; null if never. */
export function lastOk(place: Workplace, subject: string): string | null {
  try {
    const sql = `SELECT last_ok_at AS at FROM freshness WHERE subject = '${subject}'`;
    return rowsOf<{ at: string | null }>(place, sql)[0]?.at ?? null;
  } catch {
    return null;
  }
}
