import { expect, test } from 'vitest';
import { storageSpace } from '../../src/app/storage.ts';
import { diskVerdict, type Facts, formatBytes } from '../../src/health/facts.ts';
import { verdictOf } from '../../src/health/verdict.ts';

const MIB = 1024 ** 2;
const GIB = 1024 ** 3;
const WELL: Facts = {
  nowMs: Date.UTC(2026, 0, 15),
  freshness: [],
  alarms: [],
  tokens: null,
  outbox: null,
  quarantine: 0,
  ordersStaleAfterMs: 600_000,
};

test.each([
  [50 * MIB - 1, 8 * GIB, 'full', 'storage.full'],
  [50 * MIB, 8 * GIB, 'low', 'storage.low'],
  [500 * MIB - 1, 8 * GIB, 'low', 'storage.low'],
  [500 * MIB, 8 * GIB, 'ok', null],
  // The limit is 5 % of a disk, but at most 5 GiB.
  [1.9 * GIB, 40 * GIB, 'low', 'storage.low'],
  [2.1 * GIB, 40 * GIB, 'ok', null],
  [4.9 * GIB, 4000 * GIB, 'low', 'storage.low'],
  [5.1 * GIB, 4000 * GIB, 'ok', null],
  [0, 0, 'full', 'storage.full'],
])('%d free of %d is %s', (freeBytes, totalBytes, level, code) => {
  expect(diskVerdict({ freeBytes, totalBytes })).toMatchObject({ level, code });
});

test('says how much is free in the units of people', () => {
  expect(diskVerdict({ freeBytes: 20 * MIB, totalBytes: 8 * GIB }).message).toBe(
    'Only 20 MiB of 8.0 GiB are free.',
  );
  expect([0, 1023, 1536 * 1024, 1.5 * GIB, 200 * GIB].map(formatBytes)).toEqual([
    '0 B',
    '1023 B',
    '2 MiB',
    '1.5 GiB',
    '200 GiB',
  ]);
});

test('is told where a file system does not keep databases safe, whatever room it has', () => {
  const disk = { freeBytes: 100 * GIB, totalBytes: 200 * GIB };
  const facts = { ...WELL, disk: { ...disk, unsafe: 'NFS' } };
  const [finding, ...others] = verdictOf(facts).findings;
  expect(finding).toMatchObject({ code: 'storage.filesystem', level: 'amber', detail: 'File system: NFS.' });
  expect(others).toEqual([]);
  expect(verdictOf({ ...facts, disk }).findings).toEqual([]);
});

test('is that of this machine, on which databases are safe', () => {
  expect(storageSpace('/')).toEqual({ freeBytes: expect.any(Number), totalBytes: expect.any(Number) });
});
