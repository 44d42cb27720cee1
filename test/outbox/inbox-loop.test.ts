import { expect, it } from 'vitest';
import type { Alarms } from '../../src/core/alarm.ts';
import { TillsyncError } from '../../src/core/errors.ts';
import { silentLog } from '../../src/core/log.ts';
import { InboxLoop, type InboxTaken } from '../../src/outbox/intake/inbox-loop.ts';
import { FakeClock } from '../support/fake-clock.ts';

type InboxLoopOptions = ConstructorParameters<typeof InboxLoop>[0];

const NOTHING: InboxTaken = {
  taken: 0,
  rejected: 0,
  acknowledged: 0,
  unheard: [],
  refused: [],
  more: false,
  trouble: null,
  full: null,
  holders: [],
};
const LOCKED = new TillsyncError('storage-busy', 'The inbox is locked by php (process 812).', {
  hint: 'Close it.',
});

/** A loop whose reads return given results, one after the other. */
class ScriptedLoop extends InboxLoop {
  readonly #look: () => Promise<InboxTaken>;

  constructor(options: Partial<InboxLoopOptions>, look: () => Promise<InboxTaken>) {
    super(options as InboxLoopOptions);
    this.#look = look;
  }

  override ingest(): Promise<InboxTaken> {
    return this.#look();
  }
}

/**
 * Runs the loop with these results. Returns alarms and log lines in order; warnings are added to `warnings` instead.
 */
async function told(looks: (InboxTaken | Error)[], warnings: string[] = []) {
  const clock = new FakeClock();
  const words: string[] = [];
  const stop = new AbortController();
  const alarms: Alarms = {
    note: (key, trouble) => words.push(trouble === null ? `${key} down` : `${key} up: ${trouble}`),
  };
  const log = {
    ...silentLog,
    error: (_fields: object, message: string) => words.push(`error: ${message}`),
    info: (fields: object, message: string) => words.push(`${message} ${JSON.stringify(fields)}`),
    warn: (fields: object, message: string) => warnings.push(`${message} ${JSON.stringify(fields)}`),
  };
  const ingest = async () => {
    const look = looks.shift();
    if (looks.length === 0) stop.abort();
    if (look instanceof Error) throw look;
    return look ?? NOTHING;
  };
  // A sleep ends at once and moves the clock forward, so each read of the inbox takes half a second of the clock.
  const own = {
    ...clock,
    nowMs: () => clock.nowMs(),
    monotonicMs: () => clock.monotonicMs(),
    sleep: async (ms: number) => clock.advance(ms),
  };
  const options = { path: '/inbox.db', alarms, onTaken: () => {}, clock: own, log, beat: () => {} };
  await new ScriptedLoop(options, ingest).run(stop.signal);
  return words;
}

const times = <T>(count: number, each: T): T[] => Array.from({ length: count }, () => each);

it('a lock is told after half a minute, once, with who holds it, and is over when it is', async () => {
  expect(await told([NOTHING, ...times(55, LOCKED), NOTHING])).toEqual([
    'inbox.locked down',
    'inbox.damaged down',
    'outbox.full down',
  ]);
  expect(await told([NOTHING, ...times(200, LOCKED), NOTHING])).toEqual([
    'inbox.locked down',
    'inbox.damaged down',
    'outbox.full down',
    'error: the inbox cannot be used; everything else goes on',
    'inbox.locked up: The inbox is locked by php (process 812). Close it.',
    'inbox.locked down',
  ]);
});

it('InboxLoop names a program that holds a transaction open while no row waits, and none that comes and goes', async () => {
  const held = { ...NOTHING, holders: [{ pid: 812, program: 'php' }] };
  const calm = ['inbox.locked down', 'inbox.damaged down', 'outbox.full down'];
  expect(await told([...times(65, held), NOTHING, NOTHING])).toEqual([
    ...calm,
    'error: the inbox cannot be used; everything else goes on',
    'inbox.locked up: The inbox /inbox.db is locked by php (process 812). Close or restart it: it keeps a transaction open, so no other program can hand over.',
    'inbox.locked down',
  ]);
  const comesAndGoes = times(5, [...times(40, held), NOTHING]).flat();
  expect(await told([...comesAndGoes, NOTHING])).toEqual(calm);
});

it('trouble that stays is told once, and no line of what was taken repeats it', async () => {
  const kept = { ...NOTHING, taken: 1, trouble: 'It was damaged and made anew.' };
  expect(await told([kept, kept, { ...NOTHING, taken: 1 }, NOTHING])).toEqual([
    'took changes from the inbox {"taken":1,"rejected":0,"acknowledged":0,"unheard":0}',
    'inbox.locked down',
    'inbox.damaged up: It was damaged and made anew.',
    'outbox.full down',
    'took changes from the inbox {"taken":1,"rejected":0,"acknowledged":0,"unheard":0}',
    'took changes from the inbox {"taken":1,"rejected":0,"acknowledged":0,"unheard":0}',
    'inbox.damaged down',
  ]);
});

it('an acknowledgement of an unknown order is warned of by name, ten names at the most', async () => {
  const unheard = times(12, '').map((_, i) => `o${i + 1}`);
  const warnings: string[] = [];
  const known = { ...NOTHING, acknowledged: 1 };
  await told([known, { ...NOTHING, acknowledged: 12, unheard }], warnings);
  expect(warnings).toEqual([
    `the POS acknowledged orders that the mirror does not know ${JSON.stringify({ orders: unheard.slice(0, 10), all: 12 })}`,
  ]);
});

it('a process of the inbox that was silent once is told to nobody; one that is silent again is told', async () => {
  const silent = new TillsyncError('storage-failed', 'It could not be read within 20 s.');
  const newer = new TillsyncError('storage-newer', 'It is of a newer version.');
  const calm = ['inbox.locked down', 'inbox.damaged down', 'outbox.full down'];
  expect(await told([NOTHING, silent, NOTHING, silent, NOTHING])).toEqual(calm);
  const raised = 'error: the inbox cannot be used; everything else goes on';
  expect(await told([NOTHING, silent, silent, silent, NOTHING, NOTHING])).toEqual([
    ...calm,
    raised,
    'inbox.damaged up: It could not be read within 20 s.',
    'inbox.damaged down',
  ]);
  expect(await told([NOTHING, newer, NOTHING, NOTHING])).toEqual([
    ...calm,
    raised,
    'inbox.damaged up: It is of a newer version.',
    'inbox.damaged down',
  ]);
});
