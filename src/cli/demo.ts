import { type Command, Option } from 'commander';
import { TillsyncError } from '../core/errors.ts';
import { silentLog } from '../core/log.ts';
import type { DemoSummary, DemoView } from '../demo/demo.ts';
import type { SandboxPlatform, SandboxPlatformOptions } from '../demo/sandbox-platform.ts';
import { type Cli, EXIT, type JsonOption, newResultCommand, wholeNumberOption } from './cli.ts';
import { durationOption } from './options.ts';
import { Progress } from './progress.ts';
import { fields } from './table.ts';

const PLAIN_EVERY_MS = 5_000;

/** `demo`: the whole daemon against the platform in small. */
export function demoCommand(cli: Cli): Command {
  return newResultCommand('demo', 'Show tillsync at work against a small platform on this machine', [
    'demo',
    'demo --seconds 20',
  ])
    .option('--seconds <n>', 'end by itself after about this long', wholeNumberOption('--seconds', 1))
    .action((options: JsonOption & { seconds?: number }) => runInTerminal(cli, options));
}

async function runInTerminal(cli: Cli, options: JsonOption & { seconds?: number }): Promise<void> {
  const { runDemo } = await import('../demo/demo.ts');
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

type Shape = NonNullable<SandboxPlatformOptions['shape']>;
const ENVELOPES = ['array', 'data', 'docs', 'orders'] as const satisfies Shape['envelope'][];
const RECORDS = ['notification', 'internal', 'snake'] as const satisfies Shape['record'][];
/** As the platform publishes it. */
const ORDERS_INTERVAL_MS = 120_000;
const ORDERS_EVERY_MS = 10_000;

interface SandboxOptions extends JsonOption {
  host: string;
  port: number;
  ordersEvery?: number;
  ordersInterval?: number;
  seed: number;
  envelope: (typeof ENVELOPES)[number];
  record: (typeof RECORDS)[number];
  callbackUrl?: string;
}

/** `sandbox`: the platform in small, for developing against it without an account. */
export function sandboxCommand(cli: Cli): Command {
  return newResultCommand('sandbox', 'Run a small commerce platform on this machine, without an account', [
    'sandbox --port 9090 --orders-every 5s',
    'sandbox --callback-url http://127.0.0.1:8787/webhook --envelope array',
  ])
    .option('--host <host>', 'address to listen on', '127.0.0.1')
    .option('--port <port>', 'port to listen on; 0 picks a free one', wholeNumberOption('--port', 0), 0)
    .option(
      '--seed <n>',
      'which made-up products it has: the same number, the same products',
      wholeNumberOption('--seed', 0),
      1,
    )
    .option(
      '--orders-every <duration>',
      'how often an order comes in; 0s: never (default: 10s)',
      durationOption('--orders-every'),
    )
    .option(
      '--orders-interval <duration>',
      'least time between two calls of GET /order/all (default: 2m)',
      durationOption('--orders-interval'),
    )
    .addOption(
      new Option('--envelope <shape>', 'how GET /order/all wraps its list')
        .choices(ENVELOPES)
        .default('docs'),
    )
    .addOption(
      new Option('--record <style>', 'how GET /order/all spells an order')
        .choices(RECORDS)
        .default('notification'),
    )
    .option('--callback-url <url>', 'send notifications there from the start')
    .action((options: SandboxOptions) => runSandbox(cli, options));
}

async function runSandbox(cli: Cli, options: SandboxOptions): Promise<void> {
  const sandbox = await start(cli, options);
  try {
    if (options.json) {
      const document = { url: sandbox.url, ...sandbox.tokens };
      cli.stdout.write(`${JSON.stringify(document, null, 2)}\n`);
    } else {
      cli.stdout.write(welcome(sandbox));
    }
    if (!cli.signal.aborted) {
      await new Promise<void>((resolve) =>
        cli.signal.addEventListener('abort', () => resolve(), { once: true }),
      );
    }
  } finally {
    await sandbox.close();
  }
  cli.stderr.write(`The sandbox has ended; it made ${sandbox.orders()} orders.\n`);
}

async function start(cli: Cli, options: SandboxOptions): Promise<SandboxPlatform> {
  const { callbackUrl } = options;
  const { PUBLISHED_LIMITS, startSandboxPlatform } = await import('../demo/sandbox-platform.ts');
  try {
    return await startSandboxPlatform({
      clock: cli.clock,
      random: cli.random,
      log: silentLog,
      host: options.host,
      port: options.port,
      limits: { ...PUBLISHED_LIMITS, ordersIntervalMs: options.ordersInterval ?? ORDERS_INTERVAL_MS },
      ordersEveryMs: options.ordersEvery ?? ORDERS_EVERY_MS,
      seed: options.seed,
      shape: { envelope: options.envelope, record: options.record },
      ...(callbackUrl === undefined
        ? {}
        : { webhook: { callbackUrl, secret: cli.env.TILLSYNC_WEBHOOK_SECRET?.split('\n')[0] ?? '' } }),
    });
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new TillsyncError('usage', `The sandbox cannot listen on ${options.host}:${options.port}: ${why}`, {
      hint: 'Choose another --host or --port; port 0 picks a free one.',
      cause,
    });
  }
}

function welcome({ url, tokens }: SandboxPlatform): string {
  return `The sandbox platform listens on ${url}
Its controls (orders, faults, limits) are at ${url}/_sandbox

refresh token: ${tokens.refreshToken}
access token:  ${tokens.token}
(made up, and worth nothing elsewhere)

Try:  curl -s -H 'Authorization: Bearer ACCESS_TOKEN' '${url}/product/list?subsidiaryId=sub-1'
End it with Ctrl-C.
`;
}
