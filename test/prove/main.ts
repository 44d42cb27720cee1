import { spawn, spawnSync } from 'node:child_process';
import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { WORLDS } from '../slow/stock/small-worlds.ts';
import { readSlowness } from '../support/run-settings.ts';
import { nextTier, readWish } from './plan.ts';
import { type Fault, recorded, summed } from './record.ts';
import { screenOf, type Turn, turnLine } from './screen.ts';
import { type Command, repeatLine, type Tier, testsOf, tiersOf } from './tiers.ts';

/*
 * `npm run prove [-- --minutes N] [--only NAME …]` runs the tiers, which are kinds of tests, one after the other and
 * again with new seeds until the minutes are over. It adds their figures to docs/proof.md. A turn is one run of a tier.
 * A turn that has begun is not cut off at the end, so the last one may end some seconds late.
 */
const ROOT = path.resolve(import.meta.dirname, '../..');
const RECORD = path.join(ROOT, 'docs/proof.md');
/** The first seed of a turn is below this, so that the seeds after it (first + 1 and so on) are allowed too. */
const SEED_END = 2 ** 31 - 10_000;
const REDRAW_MS = 1_000;

const known = tiersOf(WORLDS.map(({ name }) => name));
const { minutes, only } = (() => {
  try {
    return readWish(
      process.argv.slice(2),
      known.map(({ name }) => name),
    );
  } catch (error) {
    process.stderr.write(`${error instanceof Error ? error.message : error}\n`);
    process.exit(2);
  }
})();
/** Measured slowness of this machine. `limits`, the factor for time limits, is `TILLSYNC_SLOW` if that is set. */
const slowness = readSlowness(undefined);
const limits = readSlowness(process.env.TILLSYNC_SLOW, () => slowness);
const git = (...words: string[]) => spawnSync('git', words, { cwd: ROOT, encoding: 'utf8' }).stdout.trim();
/** Files with uncommitted changes. If there are any, a "+" is added to the commit. */
const changed = git('status', '--porcelain', '--untracked-files=no', '--', ':!docs/proof.md');
const commit = `${git('rev-parse', '--short=7', 'HEAD') || 'no commit'}${changed === '' ? '' : '+'}`;
const isThere = (program: string) =>
  (process.env.PATH ?? '').split(':').some((directory) => existsSync(path.join(directory, program)));

const all = known.filter(({ name }) => only.length === 0 || only.some((part) => name.includes(part)));
const tiers = all.filter(({ program }) => program === undefined || isThere(program));
const logs = mkdtempSync(path.join(tmpdir(), 'tillsync-prove-'));
const began = performance.now();
const spentSeconds = () => (performance.now() - began) / 1_000;
const turns: Turn[] = [];
const faults: Fault[] = [];
let now: { tier: Tier; command: Command } | undefined;
let stop: (() => unknown) | undefined;
let isStopped = false;

const draw = () => {
  if (!process.stdout.isTTY) return;
  const screen = screenOf(tiers, { commit, minutes, spentSeconds: spentSeconds(), turns, now });
  const width = process.stdout.columns ?? 80;
  const lines = screen.split('\n').map((line) => line.slice(0, width - 1));
  process.stdout.write(`\x1b[H\x1b[J${lines.slice(0, (process.stdout.rows ?? 40) - 1).join('\n')}`);
};
const say = (text: string) => {
  if (!process.stdout.isTTY) process.stdout.write(text);
};

/** Runs one turn of a tier and returns its result; undefined if a signal stopped it. */
async function takeTurn(tier: Tier, command: Command): Promise<Turn | undefined> {
  const { env, words } = command;
  const kept = Object.entries(process.env).filter(([name]) => !name.startsWith('TILLSYNC_'));
  const beganMs = performance.now();
  const child = spawn(process.execPath, ['node_modules/vitest/vitest.mjs', 'run', ...words], {
    cwd: ROOT,
    env: {
      ...Object.fromEntries(kept),
      PATH: `${path.join(ROOT, 'node_modules/.bin')}:${process.env.PATH ?? ''}`,
      NO_COLOR: '1',
      TILLSYNC_SLOW: String(limits),
      ...env,
    },
    stdio: ['ignore', 'pipe', 'pipe'],
    // The child has its own process group, so that Ctrl-C reaches only this process, which then stops the child.
    detached: true,
  });
  const { pid } = child;
  // Ends the whole process group, which includes the daemons that the tests started.
  stop = () => pid !== undefined && process.kill(-pid, 'SIGTERM');
  let report = '';
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (text: string) => {
      report += text;
    });
  await once(child, 'close');
  stop = undefined;
  if (isStopped) return undefined;
  const { passed, failed } = testsOf(report) ?? { passed: 0, failed: 0 };
  // A turn also counts as failed if Vitest ended with an error although no test failed, or if no test ran.
  const isBad = child.exitCode !== 0 || passed + failed === 0;
  const turn = {
    tier: tier.name,
    command,
    seconds: (performance.now() - beganMs) / 1_000,
    figures: tier.read(report),
    passed,
    failed: isBad ? Math.max(1, failed) : failed,
  };
  if (turn.failed > 0) {
    const log = path.join(logs, `${turns.length}.log`);
    writeFileSync(log, report);
    const what = /^ *(?:FAIL|.*Error:) .*$/m.exec(report)?.[0].trim() ?? `ended with ${child.exitCode}`;
    faults.push({ day: today(), commit, repeat: repeatLine(command), what: what.slice(0, 200) });
    say(`${what}\n  the whole report: ${log}\n`);
  }
  return turn;
}

const today = () => new Date().toISOString().slice(0, 10);

for (const signal of ['SIGINT', 'SIGTERM'] as const)
  process.on(signal, () => {
    isStopped = true;
    stop?.();
  });

for (const { name, program } of all.filter((tier) => !tiers.includes(tier)))
  say(`left out  ${name}: ${program} is not installed\n`);
say(`Proof of tillsync at ${commit} for ${minutes} minutes; the limits of a quiet machine times ${limits}\n`);
const redraw = setInterval(draw, REDRAW_MS);
for (;;) {
  const done = turns.map(({ tier, seconds }) => ({ tier, seconds }));
  const tier = isStopped ? undefined : nextTier(tiers, done, minutes * 60 - spentSeconds(), slowness);
  if (!tier) break;
  const ended = done.filter((each) => each.tier === tier.name).length;
  now = { tier, command: tier.command(randomInt(SEED_END), ended) };
  draw();
  const turn = await takeTurn(tier, now.command);
  now = undefined;
  if (!turn) break;
  turns.push(turn);
  say(turnLine(tier, turn));
}
clearInterval(redraw);
draw();

const sumOf = (of: 'passed' | 'failed') => turns.reduce((sum, turn) => sum + turn[of], 0);
const [passed, failed] = [sumOf('passed'), sumOf('failed')];
if (turns.length > 0) {
  const figures = summed(turns.map((turn) => turn.figures));
  const run = { day: today(), commit, minutes: Math.ceil(spentSeconds() / 60), figures, passed, failed };
  writeFileSync(`${RECORD}.new`, recorded(readFileSync(RECORD, 'utf8'), run, faults));
  renameSync(`${RECORD}.new`, RECORD);
}
for (const { what, repeat } of faults) process.stdout.write(`\nFAILED  ${what}\n        ${repeat}`);
process.stdout.write(`${process.stdout.isTTY ? '\n' : ''}${passed} passed, ${failed} failed\n`);
process.exitCode = failed > 0 || passed === 0 ? 1 : 0;
