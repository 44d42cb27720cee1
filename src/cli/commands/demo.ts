import type { Command } from 'commander';
import type { DemoSummary, DemoView } from '../../daemon/demo/demo.ts';
import type { Cli } from '../cli.ts';
import { EXIT } from '../exit-code.ts';
import { type JsonOption, newResultCommand, wholeNumberOption } from '../new-command.ts';
import { Progress } from '../progress.ts';
import { fields } from '../texts/table.ts';

const PLAIN_EVERY_MS = 5_000;

/** `demo`: the whole daemon against the platform in small. */
export function demoCommand(cli: Cli): Command {
  return newResultCommand('demo', 'Show tillsync at work against a small platform on this machine', [
    'demo',
    'demo --seconds 20',
  ])
    .option('--seconds <n>', 'end by itself after about this long', wholeNumberOption('--seconds', 1))
    .action((options: JsonOption & { seconds?: number }) => run(cli, options));
}

async function run(cli: Cli, options: JsonOption & { seconds?: number }): Promise<void> {
  const { runDemo } = await import('../../daemon/demo/demo.ts');
  const progress = new Progress({ stream: cli.stderr, clock: cli.clock });
  progress.note('A small platform and tillsync start on this machine. Ctrl-C ends it with a summary.');
  const summary = await runDemo({
    clock: cli.clock,
    random: cli.random,
    signal: cli.signal,
    ...(options.seconds !== undefined && { durationMs: options.seconds * 1000 }),
    onView: throttled(cli, (view) => progress.step(viewText(view))),
    onEvent: (text) => progress.note(text),
  }).finally(() => progress.end());
  if (options.json) cli.stdout.write(`${JSON.stringify(summary, null, 2)}\n`);
  else cli.stdout.write(summaryText(summary));
  if (!isGood(summary)) cli.endWith(EXIT.failed);
}

/** Where nobody looks on, a line every few seconds is enough. */
function throttled(cli: Cli, show: (view: DemoView) => void): (view: DemoView) => void {
  let nextMs = Number.NEGATIVE_INFINITY;
  return (view) => {
    const nowMs = cli.clock.monotonicMs();
    if (!cli.stderr.isTTY && nowMs < nextMs) return;
    nextMs = nowMs + PLAIN_EVERY_MS;
    show(view);
  };
}

function viewText({ atPlatform, inMirror, callbacks, polls, refreshes }: DemoView): string {
  return `orders: ${atPlatform} at the platform, ${inMirror} in the mirror | ${callbacks} callbacks, ${polls} polls, ${refreshes} token refreshes`;
}

function isGood(summary: DemoSummary): boolean {
  const { differences, pos, violations, deadTokenUses } = summary;
  const isEqual = differences.length === 0 && pos.stocksEqual === pos.stocks;
  return isEqual && violations === 0 && deadTokenUses === 0;
}

function summaryText(summary: DemoSummary): string {
  const { traffic, pos } = summary;
  const table = fields([
    ['orders at the platform', String(summary.atPlatform)],
    ['orders in the mirror', String(summary.inMirror)],
    ['equal on both sides', String(summary.equal)],
    ['status changes', String(traffic.advanced)],
    ['changed without a callback', String(traffic.changed)],
    ['hidden from the webhook', String(traffic.hidden)],
    ['announced again', String(traffic.repeated)],
    ['callbacks sent', String(summary.callbacks)],
    ['order polls', String(summary.polls)],
    ['orders booked by the POS', String(pos.booked)],
    ['sold over the counter', String(pos.soldOverTheCounter)],
    ['stock counts handed over', String(pos.pushed)],
    ['calls that carried them', String(summary.pushCalls)],
    ['stocks equal on both sides', `${pos.stocksEqual} of ${pos.stocks}`],
    ['token refreshes', String(summary.refreshes)],
    ['restarts in between', String(summary.restarts)],
    ['limits broken', String(summary.violations)],
    ['dead refresh tokens used', String(summary.deadTokenUses)],
  ]);
  const differences = summary.differences.slice(0, 20).map((text) => `  ${text}\n`);
  const verdict = isGood(summary)
    ? 'Mirror and platform are equal, order by order and stock by stock, and no rule was broken.\n'
    : `Not equal, or a rule was broken:\n${differences.join('')}`;
  return `\n${table}\n${verdict}`;
}
