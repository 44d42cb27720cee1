import { systemClock } from '../../../src/core/system-clock.ts';
import type { FindingCode } from '../../../src/health/findings.ts';
import type { HubRows } from '../../../src/link/hub-state.ts';
import type { PageStore } from './browser-rig.ts';

type BranchReport = Parameters<HubRows['saw']>[1];

const ago = (minutes: number) => new Date(systemClock.nowMs() - minutes * 60_000).toISOString();

/** State of a branch on the board. Fields that are left out have the values of a healthy branch. */
export interface Fares {
  /** Minutes since its last report. */
  seen?: number;
  /** Entries of its feed that the branch lacks, and minutes since the first of these was written. */
  behind?: number;
  behindFor?: number;
  waiting?: number;
  oldest?: number;
  rejected?: number;
  quarantined?: number;
  finding?: FindingCode;
  level?: 'amber' | 'red';
}

/** Sets the branches' states at the hub. Branches not in `fares` are well; `null` means that a branch never joined. */
export async function letFare(
  { daemon }: PageStore,
  names: readonly string[],
  fares: Readonly<Record<string, Fares | null>> = {},
): Promise<void> {
  const { state, mirror } = daemon.services;
  for (const branch of names) {
    const how = fares[branch];
    if (how === null) continue;
    const { seen = 0, behind = 0, behindFor = 0, waiting = 0, oldest, finding, level = 'amber' } = how ?? {};
    if (!state.hub.hasJoined(branch)) {
      state.hub.invite(branch, `U${branch}`, systemClock.nowMs() + 60_000);
      // The branch joined yesterday, because the hub ignores a report from before the branch joined.
      state.hub.join(branch, `U${branch}`, systemClock.nowMs() - 24 * 60 * 60_000);
    }
    await mirror.write((db) => {
      db.prepare('DELETE FROM _feed WHERE branch = ?').run(branch);
      const numbered = `INSERT INTO _feed_branches (branch, last_n) VALUES (?, ?)
        ON CONFLICT (branch) DO UPDATE SET last_n = excluded.last_n`;
      db.prepare(numbered).run(branch, behind);
      for (let n = 1; n <= behind; n++) {
        const sql = `INSERT INTO _feed (branch, n, kind, body, written_at, published) VALUES (?, ?, 'order', '{}', ?, 1)`;
        db.prepare(sql).run(branch, n, ago(behindFor));
      }
    });
    const report: BranchReport = {
      ...{
        instance: branch,
        mark: 0,
        seq: 0,
        waiting,
        rejected: how?.rejected ?? 0,
        quarantined: how?.quarantined ?? 0,
      },
      oldestWaitingAt: oldest === undefined ? null : ago(oldest),
      verdict: { level: finding === undefined ? 'green' : level, finding: finding ?? null },
      version: '0.1.0',
    };
    state.hub.saw(branch, report, systemClock.nowMs() - seen * 60_000);
  }
}
