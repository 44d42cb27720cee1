import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { openMirror } from '../../src/app/mirror.ts';
import { systemClock } from '../../src/core/system-clock.ts';
import { newRecoveryPhrase } from '../../src/support/recovery-phrase.ts';
import { API_KEY } from '../support/api-key.ts';
import { keepSigningKey } from '../support/signing-key.ts';
import { type BenchOptions, type BenchResult, median } from './bench-result.ts';
import { benchEntry, benchOrder } from './mirror-samples.ts';
import { inherited, outputOf, packagedProgram, startNode, stopChild } from './packaged-program.ts';

export const expectedSeconds = { quick: 20, full: 90 };

const WHOLE = 'tillsync-till-20260601T080000Z.tar.gz';
const DIFFERENTIAL = 'tillsync-till-20260601T080000Z.differential.tar.gz';
const SINCE = '2026-06-01T07:50:00Z';
const AT_ONCE = 500;
/** Orders that the POS of a busy store acknowledges between two whole backups. */
const ACKNOWLEDGED = 1_000;

/**
 * Measures the time from the encrypted backups of a dead machine and the recovery phrase until a new machine gives the
 * POS a right answer.
 */
export async function run({ quick, progress }: BenchOptions): Promise<BenchResult[]> {
  const orders = quick ? 10_000 : 100_000;
  const directory = mkdtempSync(path.join(tmpdir(), 'tillsync-restore-'));
  try {
    progress('bundling the program');
    const program = await packagedProgram(path.join(directory, 'program'));
    const environment = {
      ...program.environment,
      CACHE_DIRECTORY: path.join(directory, 'cache'),
      TILLSYNC_LOCAL_API_KEY: API_KEY,
    };
    const { phrase, recipient, signingKey } = await newRecoveryPhrase('en');
    const backups = path.join(directory, 'backups');
    mkdirSync(backups);
    const command = (machine: string, words: string[], input = '') => {
      const options = { env: { ...inherited(), ...environment }, input, stdio: 'pipe' as const };
      const beganMs = performance.now();
      const args = [...program.args, ...words, '--config', configOf(directory, machine, recipient)];
      execFileSync(process.execPath, args, options);
      return performance.now() - beganMs;
    };
    progress(`mirroring ${orders} orders`);
    await fillMirror(path.join(directory, 'dead', 'mirror.db'), orders);
    keepSigningKey(path.join(directory, 'dead'), signingKey);
    progress('backing up');
    const backupMs = command('dead', ['backup', path.join(backups, WHOLE)]);
    await acknowledge(path.join(directory, 'dead', 'mirror.db'));
    const differential = ['backup', path.join(backups, DIFFERENTIAL), '--since', SINCE];
    const differentialMs = median([1, 2, 3].map(() => command('dead', differential)));
    progress('restoring');
    const restoreMs = command('next', ['restore', backups, '--phrase'], phrase);
    const answerMs = await firstAnswer(
      [...program.args, 'run', '--config', configOf(directory, 'next', recipient)],
      {
        environment,
        orders,
      },
    );
    const size = (name: string, unit: number) =>
      (statSync(path.join(backups, `${name}.age`)).size / unit).toFixed(1);
    return [
      {
        name: `a dead machine: seconds from backups of ${orders} orders and the phrase to a right answer for the POS`,
        ratio: (restoreMs + answerMs) / 1_000,
        bound: '<= 60',
        detail:
          `restore ${restoreMs.toFixed(0)} ms, start and answer ${answerMs.toFixed(0)} ms; whole backup ` +
          `${size(WHOLE, 1_000_000)} MB in ${backupMs.toFixed(0)} ms`,
      },
      {
        name: `a differential backup with ${ACKNOWLEDGED} acknowledgements, in seconds of a process of its own`,
        ratio: differentialMs / 1_000,
        bound: '<= 3',
        detail: `${differentialMs.toFixed(0)} ms, ${size(DIFFERENTIAL, 1_000)} kB`,
      },
    ];
  } finally {
    rmSync(directory, { recursive: true });
  }
}

async function fillMirror(file: string, orders: number): Promise<void> {
  const mirror = openMirror({ path: file, clock: systemClock });
  for (let first = 0; first < orders; first += AT_ONCE) {
    await mirror.save(Array.from({ length: AT_ONCE }, (_, i) => benchEntry(first + i)));
  }
  await mirror.close();
}

async function acknowledge(file: string): Promise<void> {
  const mirror = openMirror({ path: file, clock: systemClock });
  await mirror.write((db) => {
    db.prepare(
      `INSERT INTO _order_acks (order_id, branch, acked_at, source, seq)
       SELECT order_id, '', '2026-06-01T09:00:00.000Z', 'http', seq FROM orders LIMIT ?`,
    ).run(ACKNOWLEDGED);
  });
  await mirror.close();
}

/** Returns how long the daemon takes from its start until it answers for the newest order. */
async function firstAnswer(
  args: string[],
  { environment, orders }: { environment: Record<string, string>; orders: number },
): Promise<number> {
  const beganMs = performance.now();
  const child = startNode(args, environment);
  try {
    const said = await outputOf(child, /tillsync is running/);
    const line = said.split('\n').find((each) => each.includes('tillsync is running')) ?? '';
    const { localUrl } = JSON.parse(line) as { localUrl: string };
    const newest = benchOrder(orders - 1);
    const answer = await fetch(`${localUrl}/v1/orders/${String(newest.internalOrderId)}`);
    const text = await answer.text();
    if (!answer.ok || !text.includes(String(newest.internalOrderId))) {
      throw new Error(`the restored machine answered ${answer.status}: ${text.slice(0, 200)}`);
    }
    return performance.now() - beganMs;
  } finally {
    await stopChild(child);
  }
}

/** Writes the configuration of one machine. */
function configOf(directory: string, machine: string, recipient: string): string {
  const file = path.join(directory, `${machine}.toml`);
  const lines = [
    ...['[platform]', 'base_url = "http://127.0.0.1:9"'],
    ...['[storage]', `directory = "${path.join(directory, machine)}"`],
    ...['[backup]', `recipient = "${recipient}"`],
    ...['[webhook]', 'listen = "127.0.0.1:0"', '[orders]', 'timezone = "America/Santiago"'],
    ...['[local]', 'listen = "127.0.0.1:0"', '[[branches]]', 'subsidiary_id = "sub-1"'],
  ];
  writeFileSync(file, `${lines.join('\n')}\n`);
  return file;
}
