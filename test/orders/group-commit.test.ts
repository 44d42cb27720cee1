import { describe, expect, it } from 'vitest';
import { TillsyncError } from '../../src/core/errors.ts';
import { silentLog } from '../../src/core/log.ts';
import { GroupCommit, type Saved } from '../../src/orders/receiving/group-commit.ts';
import { FakeClock, settle } from '../support/fake-clock.ts';
import { gate, MemorySink, orderEntry } from './memory-sink.ts';

type GroupCommitOptions = ConstructorParameters<typeof GroupCommit>[0];

function setUp(options: Partial<GroupCommitOptions> = {}) {
  const sink = new MemorySink();
  const clock = new FakeClock();
  const commits = new GroupCommit({ sink, clock, log: silentLog, ...options });
  return { sink, clock, commits };
}

const ids = (sink: MemorySink) =>
  sink.groups.map((group) =>
    group.map((entry) => (entry.kind === 'order' ? entry.observation.reading.orderId : 'quarantine')),
  );

async function codeOf(promise: Promise<unknown>): Promise<string> {
  try {
    await promise;
    return 'kept';
  } catch (error) {
    return error instanceof TillsyncError ? error.code : 'other';
  }
}

describe('GroupCommit', () => {
  it('keeps in one commit what arrives one per turn of the event loop', async () => {
    const { sink, commits } = setUp();
    const answers: Promise<unknown>[] = [];
    for (const id of ['a', 'b', 'c', 'd']) {
      answers.push(commits.add(orderEntry(id), 10));
      await settle(1);
    }
    expect(await Promise.all(answers)).toEqual(['created', 'created', 'created', 'created']);
    expect(ids(sink)).toEqual([['a', 'b', 'c', 'd']]);
  });

  it('does not wait for quiet longer than 5 ms', async () => {
    const { sink, clock, commits } = setUp();
    const answers: Promise<unknown>[] = [];
    for (let i = 0; i < 20 && sink.groups.length === 0; i++) {
      answers.push(commits.add(orderEntry(`o${i}`), 10));
      await settle(1);
      await clock.advance(0.5);
    }
    await Promise.all(answers);
    expect(sink.groups[0]?.length).toBeLessThanOrEqual(11);
  });

  it('collects for as long as a commit takes where the disk is slow, and no longer than 100 ms', async () => {
    for (const [commitMs, most] of [
      [1, 6],
      [60, 61],
      [5_000, 101],
    ] as const) {
      let nowMs = 0;
      const clock = Object.assign(new FakeClock(), { monotonicMs: () => nowMs });
      const { sink, commits } = setUp({ clock });
      sink.before = () => {
        nowMs += commitMs;
      };
      await commits.add(orderEntry('first'), 10);
      await settle(1);
      const answers: Promise<unknown>[] = [];
      for (let i = 0; sink.groups.length < 2; i++) {
        answers.push(commits.add(orderEntry(`o${i}`), 10));
        await settle(1);
        nowMs++;
      }
      await Promise.all(answers);
      expect(sink.groups[1]?.length).toBeGreaterThan(most - 4);
      expect(sink.groups[1]?.length).toBeLessThanOrEqual(most);
    }
  });

  it.each(['storage-full', 'storage-failed'] as const)(
    'tells of a disk that keeps nothing (%s) once a minute, and when it is over',
    async (code) => {
      const told: string[] = [];
      const tell = (level: string) => (fields: object) =>
        told.push(`${level} ${Object.values(fields).filter((value) => typeof value === 'number')}`);
      const log = { debug() {}, info: tell('info'), warn: tell('warn'), error: tell('error') };
      let putOff = 0;
      const onPutOff = () => {
        putOff += 1;
      };
      const { sink, clock, commits } = setUp({ log, onPutOff });
      sink.before = () => {
        throw new TillsyncError(code, 'The disk is full.');
      };
      for (let i = 0; i < 4; i++) {
        expect(await codeOf(commits.add(orderEntry(`o${i}`), 10))).toBe(code);
        await clock.advance(25_000);
      }
      sink.before = () => {};
      await commits.add(orderEntry('kept'), 10);
      await commits.add(orderEntry('kept too'), 10);
      expect(told).toEqual(['error 1', 'error 4', 'info 4']);
      expect(putOff).toBe(4);
    },
  );

  it('commits at most 200 at once and loses none of the rest', async () => {
    const { sink, commits } = setUp();
    const answers = Array.from({ length: 450 }, (_, i) => commits.add(orderEntry(`o${i}`), 10));
    await Promise.all(answers);
    expect(sink.groups.map((group) => group.length)).toEqual([200, 200, 50]);
    expect(sink.orderIds).toEqual(Array.from({ length: 450 }, (_, i) => `o${i}`));
  });

  it('collects the next group while a commit is under way, one commit at a time', async () => {
    const { sink, commits } = setUp();
    const slow = gate();
    let underWay = 0;
    sink.before = async () => {
      underWay++;
      expect(underWay).toBe(1);
      await slow.opened;
      underWay--;
    };
    const first = commits.add(orderEntry('first'), 10);
    await settle(8);
    const later = ['x', 'y', 'z'].map((id) => commits.add(orderEntry(id), 10));
    await settle(8);
    slow.open();
    await Promise.all([first, ...later]);
    expect(ids(sink)).toEqual([['first'], ['x', 'y', 'z']]);
  });

  it('refuses what exceeds the bound of waiting entries or bytes, and takes more afterwards', async () => {
    const { sink, commits } = setUp();
    const slow = gate();
    sink.before = () => slow.opened;
    const kept = [commits.add(orderEntry('a'), 10)];
    await settle(8);
    kept.push(commits.add(orderEntry('b'), 32 * 1024 * 1024 - 1_999));
    expect(await codeOf(commits.add(orderEntry('heavy'), 2_000))).toBe('storage-busy');
    const more = Array.from({ length: 1_999 }, (_, i) => `${i}`);
    kept.push(...more.map((id) => commits.add(orderEntry(id), 1)));
    expect(await codeOf(commits.add(orderEntry('one too many'), 0))).toBe('storage-busy');
    slow.open();
    await Promise.all(kept);
    await commits.add(orderEntry('e'), 32 * 1024 * 1024);
    expect(sink.orderIds).toEqual(['a', 'b', ...more, 'e']);
  });

  it('tells of each group that a fault of the disk put off', async () => {
    const told: string[] = [];
    const { sink, commits } = setUp({ onPutOff: ({ code }) => void told.push(code) });
    sink.before = async () => {
      throw new TillsyncError('storage-full', 'full');
    };
    await Promise.all([codeOf(commits.add(orderEntry('a'), 10)), codeOf(commits.add(orderEntry('b'), 10))]);
    expect(told).toEqual(['storage-full']);
  });

  it.each(['storage-full', 'storage-busy', 'storage-readonly'] as const)(
    'refuses a whole group on %s without trying its entries one by one',
    async (code) => {
      const { sink, commits } = setUp();
      let tries = 0;
      sink.before = () => {
        tries++;
        throw new TillsyncError(code, 'no');
      };
      const answers = ['a', 'b', 'c'].map((id) => codeOf(commits.add(orderEntry(id), 1)));
      expect(await Promise.all(answers)).toEqual([code, code, code]);
      expect(tries).toBe(1);
      sink.before = () => {};
      expect(await commits.add(orderEntry('d'), 1)).toBe('created');
    },
  );

  it('lets one poisoned order refuse none of its neighbours, and quarantines it', async () => {
    const kept: Saved[] = [];
    const { sink, commits } = setUp({ onSaved: (all) => kept.push(...all) });
    sink.before = (entries) => {
      const poisoned = entries.some((e) => e.kind === 'order' && e.observation.reading.orderId === 'bad');
      if (poisoned) throw new Error('a constraint nobody thought of');
    };
    const answers = ['a', 'bad', 'c'].map((id) => commits.add(orderEntry(id), 1));
    expect(await Promise.all(answers)).toEqual(['created', 'quarantined', 'created']);
    expect(sink.quarantined.map(({ payload }) => payload)).toEqual(['{"internalOrderId":"bad"}']);
    await commits.drained();
    expect(kept.map(({ outcome }) => outcome)).toEqual(['created', 'quarantined', 'created']);
    expect(kept[1]?.entry.kind).toBe('unreadable');
  });

  it('gives up on the rest once the disk itself proves at fault', async () => {
    const { sink, commits } = setUp();
    let tries = 0;
    sink.before = () => {
      tries++;
      throw new TillsyncError('storage-failed', 'EIO');
    };
    const answers = Array.from({ length: 50 }, (_, i) => codeOf(commits.add(orderEntry(`o${i}`), 1)));
    expect(new Set(await Promise.all(answers))).toEqual(new Set(['storage-failed']));
    expect(tries).toBeLessThanOrEqual(3);
  });

  it('hides nothing in quarantine that a damaged mirror could not take', async () => {
    const { sink, commits } = setUp();
    sink.before = (entries) => {
      if (entries.some(({ kind }) => kind === 'order')) throw new TillsyncError('storage-corrupt', 'damaged');
    };
    const answers = [orderEntry('a'), orderEntry('b')].map((entry) => codeOf(commits.add(entry, 1)));
    expect(await Promise.all(answers)).toEqual(['storage-corrupt', 'storage-corrupt']);
    expect(sink.quarantined).toEqual([]);
  });

  it('is drained only when everything was answered', async () => {
    const { sink, commits } = setUp();
    const slow = gate();
    sink.before = () => slow.opened;
    let drained = false;
    const answer = commits.add(orderEntry('a'), 1);
    const end = commits.drained().then(() => {
      drained = true;
    });
    await settle(10);
    expect(drained).toBe(false);
    slow.open();
    await Promise.all([answer, end]);
    await commits.drained();
    expect(sink.orderIds).toEqual(['a']);
  });

  it('survives a listener that throws', async () => {
    const { commits } = setUp({
      onSaved: () => {
        throw new Error('listener');
      },
    });
    expect(await commits.add(orderEntry('a'), 1)).toBe('created');
    await commits.drained();
    expect(await commits.add(orderEntry('b'), 1)).toBe('created');
  });
});
