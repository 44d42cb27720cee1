import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import Database from 'better-sqlite3';
import { expect, it, onTestFinished } from 'vitest';
import { openStateFile } from '../../src/db/state-file.ts';
import { HubRows, LinkKeyRows } from '../../src/link/hub-state.ts';

type BranchReport = Parameters<HubRows['saw']>[1];

const BEGAN_MS = Date.UTC(2026, 0, 1);
const report = (more: Partial<BranchReport> = {}): BranchReport => ({
  instance: 'one',
  mark: 1,
  waiting: 0,
  oldestWaitingAt: null,
  rejected: 0,
  quarantined: 0,
  verdict: { level: 'green', finding: null },
  version: '0',
  ...more,
});

function hubRows(): {
  rows: HubRows;
  stored: () => { seenAt: string | null; report: BranchReport | null };
  commits: () => number;
} {
  const directory = mkdtempSync(path.join(tmpdir(), 'tillsync-hub-rows-'));
  const { db, ...state } = openStateFile(path.join(directory, 'state.db'), 100, 'hub');
  const other = new Database(path.join(directory, 'state.db'), { readonly: true });
  onTestFinished(() => {
    other.close();
    db.close();
    rmSync(directory, { recursive: true, force: true });
  });
  expect(state).toBeDefined();
  const rows = new HubRows(db, () => {});
  for (const name of ['B1', 'B2']) {
    rows.invite(name, `U${name}`, BEGAN_MS + 1_000);
    rows.join(name, `U${name}`, BEGAN_MS);
  }
  return {
    rows,
    stored: () => {
      const row = other
        .prepare<[], { seenAt: string; report: string }>(
          "SELECT seen_at AS seenAt, report FROM hub_branches WHERE branch = 'B1'",
        )
        .get();
      return {
        seenAt: row?.seenAt ?? null,
        report: row?.report ? (JSON.parse(row.report) as BranchReport) : null,
      };
    },
    // Returns a number that changes with each commit of another connection.
    commits: () => Number(other.pragma('data_version', { simple: true })),
  };
}

it('a sign of life is no commit: what branches say is written together every few seconds, the times once a minute', () => {
  const { rows, stored, commits } = hubRows();
  let nowMs = BEGAN_MS;
  for (const name of ['B1', 'B2']) rows.saw(name, report(), nowMs);
  rows.writeHeard(nowMs);
  const before = commits();
  for (let second = 1; second < 27; second++) {
    nowMs = BEGAN_MS + second * 1_000;
    for (const name of ['B1', 'B2']) rows.saw(name, report(), nowMs);
    rows.writeHeard(nowMs);
  }
  expect(commits()).toBe(before);
  // This process knows the new time at once, without a commit.
  expect(rows.branches()[0]).toMatchObject({
    branch: 'B1',
    seenAt: new Date(nowMs).toISOString(),
    report: report(),
  });
  expect(stored().seenAt).toBe(new Date(BEGAN_MS).toISOString());
  nowMs = BEGAN_MS + 27_000;
  rows.saw('B1', report({ mark: 7 }), nowMs);
  expect(rows.markOf('B1')).toBe(7);
  rows.writeHeard(nowMs);
  expect(stored().report?.mark).toBe(7);
  const after = commits();
  nowMs = BEGAN_MS + 60_000;
  rows.writeHeard(nowMs);
  expect(commits()).toBeGreaterThan(after);
});

it('a process that speaks for a branch anew is durable at once, so that it is heard after a kill of the hub', () => {
  const { rows, stored } = hubRows();
  rows.saw('B1', report(), BEGAN_MS);
  rows.writeHeard(BEGAN_MS);
  rows.saw('B1', report({ instance: 'two' }), BEGAN_MS + 1);
  expect(stored().report?.instance).toBe('two');
});

it('a branch that was removed and invited again is not taken for the machine that was heard before', () => {
  const { rows } = hubRows();
  rows.saw('B1', report(), BEGAN_MS);
  rows.remove('B1');
  rows.invite('B1', 'Unew', BEGAN_MS + 60_000);
  expect(rows.branches()[0]).toMatchObject({ seenAt: null, report: null });
  rows.join('B1', 'Unew', BEGAN_MS + 10);
  expect(rows.branches()[0]).toMatchObject({ seenAt: null, report: null });
  rows.saw('B1', report({ instance: 'new' }), BEGAN_MS + 20);
  expect(rows.branches()[0]?.report?.instance).toBe('new');
});

it('a branch that is invited again keeps its key until a machine has joined with the new one', () => {
  const { rows } = hubRows();
  rows.invite('B1', 'Uinvited', BEGAN_MS + 60_000);
  expect(rows.branches()[0]).toMatchObject({ publicKey: 'UB1', invitedKey: 'Uinvited' });
  expect(rows.hasJoined('B1')).toBe(true);
  expect(rows.copy().branches[0]).toMatchObject({ branch: 'B1', publicKey: 'UB1' });
  expect(rows.join('B1', 'Ulate', BEGAN_MS + 60_001)).toMatch(/B1 has expired/);
  expect(rows.branches()[0]?.publicKey).toBe('UB1');
  expect(rows.join('B1', 'Unew', BEGAN_MS + 10)).toBeUndefined();
  expect(rows.branches()[0]).toMatchObject({ publicKey: 'Unew', invitedKey: null, expiresAt: null });
  // The branch did not receive the answer and asks again.
  expect(rows.join('B1', 'Unew', BEGAN_MS + 20)).toBeUndefined();
  expect(rows.join('B1', 'Uthief', BEGAN_MS + 30)).toMatch(/B1 was used already/);
});

it('a proposed key of a branch takes the place of the one in use only once the hub has taken it', () => {
  const directory = mkdtempSync(path.join(tmpdir(), 'tillsync-link-key-'));
  const { db } = openStateFile(path.join(directory, 'state.db'), 100, 'branch');
  onTestFinished(() => {
    db.close();
    rmSync(directory, { recursive: true, force: true });
  });
  const secrets: string[] = [];
  const key = new LinkKeyRows(db, (value) => secrets.push(value));
  key.propose('first');
  expect([key.read(), key.next()]).toEqual([undefined, 'first']);
  key.accept();
  key.propose('second');
  expect([key.read(), key.next()]).toEqual(['first', 'second']);
  key.withdraw();
  key.accept();
  expect([key.read(), key.next()]).toEqual(['first', undefined]);
  expect(secrets).toEqual(expect.arrayContaining(['first', 'second']));
});

it('branches keep who they are under another name, and no name of one is given to another', () => {
  const { rows } = hubRows();
  const of = (...names: string[]) =>
    rows.named(names.map((name) => ({ name, subsidiaryId: name === 'B1' ? 'sub-1' : 'sub-2' })));
  rows.noteSubsidiary('B2', 'sub-2');
  expect(of('B1', 'B2')).toEqual([
    { branch: 'B1', name: 'B1' },
    { branch: 'B2', name: 'B2' },
  ]);
  expect(of('B1', 'Norte')[1]).toEqual({ branch: 'Norte', name: 'Norte', renamedFrom: 'B2' });
  rows.rename('B2', 'Norte');
  expect(of('B1', 'Norte')[1]).toEqual({ branch: 'B2', name: 'Norte' });
  expect(rows.copy().branches[1]).toMatchObject({ branch: 'B2', name: 'Norte', publicKey: 'UB2' });
  // A new branch gets the name B2, which the branch that is now Norte had before.
  expect(of('B2', 'Norte')).toEqual([
    { branch: 'B2-2', name: 'B2' },
    { branch: 'B2', name: 'Norte' },
  ]);
  expect(rows.remove('B2')).toBe(true);
  expect(rows.remove('B2')).toBe(false);
  expect(of('Norte')).toEqual([{ branch: 'B2', name: 'Norte' }]);
});

it('a branch that was closed is open again once it is invited', () => {
  const { rows } = hubRows();
  const all = [
    { name: 'B1', subsidiaryId: null },
    { name: 'B2', subsidiaryId: null },
  ];
  expect(rows.close({ branch: 'B2', name: 'B2' }, BEGAN_MS)).toBe(true);
  expect(rows.close({ branch: 'B2', name: 'B2' }, BEGAN_MS)).toBe(false);
  expect(rows.open(all).map(({ name }) => name)).toEqual(['B1']);
  expect(rows.hasJoined('B2')).toBe(false);
  rows.invite('B2', 'Unew', BEGAN_MS + 1_000);
  expect(rows.open(all).map(({ name }) => name)).toEqual(['B1', 'B2']);
});
