import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { FindingLevel } from '../../src/core/alarm.ts';
import { TillsyncError } from '../../src/core/errors.ts';
import { silentLog } from '../../src/core/log.ts';
import type { Finding } from '../../src/health/facts.ts';
import type { FindingCode } from '../../src/health/findings.ts';
import { Heartbeat, type HeartbeatMemory, heartbeatAddress } from '../../src/health/heartbeat.ts';
import { CurrentAssessment } from '../../src/health/notifier.ts';
import { FakeClock } from '../support/fake-clock.ts';

const MINUTE_MS = 60_000;
const SECRET = '9b1deb4d-3b7d-4bad';
/** Time within which the watcher must answer. A busy machine gets more. */
const ANSWER_MS = Math.round(200 * Number(process.env.TILLSYNC_SLOW));

describe('the address of a heartbeat', () => {
  const red = ['storage.full', 'orders.stale'] as const;
  it.each([
    ['https://hc-ping.com/9b1d', 'https://hc-ping.com/9b1d/fail'],
    ['https://hc-ping.com/key/shop-7/?create=1', 'https://hc-ping.com/key/shop-7/fail?create=1'],
    [
      'https://kuma.example/api/push/Tok?status=up&msg=OK&ping=',
      'https://kuma.example/api/push/Tok?status=down&msg=storage.full%2C+orders.stale&ping=',
    ],
    [
      'https://kuma.example/behind/api/push/Tok',
      'https://kuma.example/behind/api/push/Tok?status=down&msg=storage.full%2C+orders.stale',
    ],
    ['https://w.example/p?status=up', 'https://w.example/p?status=down&msg=storage.full%2C+orders.stale'],
  ])('%s says red as %s', (configured, told) => {
    expect(heartbeatAddress(configured, red)).toBe(told);
    expect(heartbeatAddress(configured, [])).toBe(configured);
  });
});

describe('a heartbeat', () => {
  let server: Server;
  let heard: string[];
  let answer: { status: number; text: string } | 'none';
  beforeEach(async () => {
    heard = [];
    answer = { status: 200, text: 'OK' };
    server = createServer((request, response) => {
      heard.push((request.url ?? '').replace(`/${SECRET}`, ''));
      if (answer !== 'none') response.writeHead(answer.status).end(answer.text);
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
  });
  afterEach(() => {
    server.closeAllConnections();
    server.close();
  });

  function rig() {
    const clock = new FakeClock();
    const { signal } = new AbortController();
    const remembered: HeartbeatMemory[] = [];
    const outcomes: string[] = [];
    const logged: string[] = [];
    const place = { red: [] as FindingCode[], amber: [] as FindingCode[], fault: undefined as unknown };
    const say = (fields: object, message: string) => void logged.push(`${message} ${JSON.stringify(fields)}`);
    const now = new CurrentAssessment(() => {
      if (place.fault) throw place.fault;
      const findings = (codes: readonly FindingCode[], level: FindingLevel) =>
        codes.map((code) => ({ code, level }) as Finding);
      return {
        findings: [...findings(place.red, 'red'), ...findings(place.amber, 'amber')],
        hidden: new Set<FindingCode>(),
      };
    }, clock);
    const heartbeat = new Heartbeat({
      url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/${SECRET}`,
      everyMs: MINUTE_MS,
      timeoutMs: ANSWER_MS,
      version: '1.0.0',
      assessment: () => now.read(),
      remember: (memory) => remembered.push(memory),
      onSent: (outcome) => outcomes.push(outcome),
      clock,
      log: { ...silentLog, warn: say, info: say, debug: say },
    });
    /** Runs the heartbeat every five seconds for this time. Returns the requests that arrived. */
    const pass = async (ms: number) => {
      heard.length = 0;
      for (let at = 0; at < ms; at += 5_000) {
        await heartbeat.pingIfDue(signal);
        await clock.advance(5_000);
      }
      return [...heard];
    };
    return { place, clock, heartbeat, signal, pass, remembered, outcomes, logged };
  }

  it('is sent at the start, every minute, and at once when it becomes red or is no longer', async () => {
    const { place, pass, outcomes } = rig();
    expect(await pass(5_000)).toEqual(['']);
    expect(await pass(3 * MINUTE_MS)).toEqual(['', '', '']);
    place.amber = ['storage.low'];
    expect(await pass(30_000)).toEqual([]);
    place.red = ['storage.full'];
    expect(await pass(5_000)).toEqual(['/fail']);
    expect(await pass(MINUTE_MS)).toEqual(['/fail']);
    place.red = [];
    expect(await pass(5_000)).toEqual(['']);
    expect(new Set(outcomes)).toEqual(new Set(['ok']));
  });

  it('does not call red what grew old while nothing ran, and has not been made good yet', async () => {
    const { place, pass, clock } = rig();
    place.red = ['orders.stale'];
    expect(await pass(4 * MINUTE_MS)).toEqual(['', '', '', '']);
    expect(await pass(5_000)).toEqual(['/fail']);
    place.red = [];
    await pass(MINUTE_MS);
    // The machine slept, so the wall clock went on, and the red finding began only afterwards.
    clock.jumpWall(8 * 60 * MINUTE_MS);
    place.red = ['orders.stale'];
    expect(await pass(3 * MINUTE_MS)).not.toContain('/fail');
    expect(await pass(MINUTE_MS + 5_000)).toContain('/fail');
  });

  it('that does not arrive is tried again, told once, and never names its address', async () => {
    const { pass, remembered, outcomes, logged } = rig();
    answer = { status: 500, text: '' };
    expect(await pass(MINUTE_MS)).toHaveLength(4);
    expect(outcomes).toEqual(['failed', 'failed', 'failed', 'failed']);
    answer = { status: 200, text: 'OK (not found)' };
    await pass(MINUTE_MS);
    answer = { status: 200, text: '{"ok":false,"msg":"Monitor not found or not active."}' };
    await pass(MINUTE_MS);
    answer = 'none';
    await pass(15_000);
    answer = { status: 200, text: '{"ok":true}' };
    await pass(MINUTE_MS);
    expect(remembered.map(({ ok, message }) => `${ok} ${message.replace(/:\d+/, '')}`)).toEqual([
      'false The heartbeat was not taken: 127.0.0.1 answered 500.',
      'false The heartbeat was not taken: 127.0.0.1 does not know it.',
      `false The heartbeat was not taken: 127.0.0.1 gave no answer within ${ANSWER_MS} ms.`,
      'true ',
    ]);
    expect(logged.filter((line) => line.includes('answered 500'))).toHaveLength(1);
    expect(JSON.stringify([remembered, logged])).not.toContain(SECRET);
  });

  it('is red when the disk can no longer be read, and as before while it is only busy', async () => {
    const { place, pass } = rig();
    await pass(5_000);
    place.fault = new TillsyncError('storage-busy', 'Busy.');
    expect(await pass(2 * MINUTE_MS)).toEqual(['', '']);
    place.fault = new TillsyncError('storage-failed', 'Gone.');
    expect(await pass(5_000)).toEqual(['/fail']);
  });
});
