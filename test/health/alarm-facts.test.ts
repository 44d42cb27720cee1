import { describe, expect, it } from 'vitest';
import type { AlarmKey } from '../../src/core/alarm.ts';
import { lookAtFacts } from '../../src/health/alarm-teller.ts';

const MIB = 1024 ** 2;

describe('what no flow notices by itself', () => {
  function rig() {
    const up = new Map<AlarmKey, string>();
    const look = (freeMib: number, hasNoTokens = false) => {
      lookAtFacts({
        alarms: { raise: (key, message) => void up.set(key, message), lower: (key) => void up.delete(key) },
        disk: () => ({ freeBytes: freeMib * MIB, totalBytes: 10_000 * MIB }),
        hasNoTokens: () => hasNoTokens,
        clockSkewMs: () => undefined,
        orderCompanies: () => undefined,
      });
      return [...up.keys()];
    };
    return { up, look };
  }

  it('is a disk that fills, is full, and has room again', () => {
    const { look, up } = rig();
    expect(look(600)).toEqual([]);
    expect(look(400)).toEqual(['storage.low']);
    expect(up.get('storage.low')).toContain('400 MiB');
    expect(look(510)).toEqual(['storage.low']);
    expect(look(10)).toEqual(['storage.low', 'storage.full']);
    expect(look(52)).toEqual(['storage.low', 'storage.full']);
    expect(look(100)).toEqual(['storage.low']);
    expect(look(600)).toEqual([]);
  });

  it('is a tillsync without tokens, until some are handed over', () => {
    const { look } = rig();
    expect(look(9_000, true)).toEqual(['auth.none']);
    expect(look(9_000)).toEqual([]);
  });
});
