import { TillsyncError } from '../core/errors.ts';
import { silentLog } from '../core/log.ts';
import { formatDuration } from '../core/time.ts';
import type { BranchesDemoSummary } from '../demo/branches-demo.ts';
import type { DemoOptions, DemoSummary, DemoView } from '../demo/demo.ts';
import type { SandboxPlatform } from '../demo/sandbox-platform.ts';
import { aborted, EXIT, writeJson } from './cli.ts';
import { choice, command, ofChain, parsed, whole, withDefault } from './command.ts';
import { duration } from './options.ts';
import { Progress } from './progress.ts';
import { fields, table } from './table.ts';

/** Interval at which a progress line is written if standard error is no terminal. */
const PLAIN_EVERY_MS = 5_000;
/** Maximum number of branches in a demo. A laptop can run this many in one process. */
const BRANCHES_MAX = 50;

export const demo = command({
  description: 'Try tillsync with a simulated shop',
  examples: ['demo', 'demo --seconds 20'],
  options: {
    '--seconds <n>': whole('Stop after about this many seconds', 1),
    '--branches <n>': ofChain(whole('Run a hub with this many branches; needs nats-server', 1)),
  },
  async run({ cli, options: { seconds, branches } }) {
    const { clock, random, signal, stderr } = cli;
    const progress = new Progress(cli);
    if (branches !== undefined && branches > BRANCHES_MAX) {
      throw new TillsyncError('usage', `--branches: found ${branches}; allowed: 1 to ${BRANCHES_MAX}.`);
    }
    progress.note('A small platform and tillsync start on this machine. Ctrl-C ends it with a summary.');
    let nextMs = Number.NEGATIVE_INFINITY;
    const options: DemoOptions = {
      clock,
      random,
      signal,
      ...(seconds !== undefined && { durationMs: seconds * 1000 }),
      onView: (view) => {
        const nowMs = clock.monotonicMs();
        if (!stderr.isTTY && nowMs < nextMs) return;
        nextMs = nowMs + PLAIN_EVERY_MS;
        progress.step(viewText(view));
      },
      onEvent: (text) => progress.note(text),
    };
    if (branches !== undefined) {
      const { runBranchesDemo } = await import('../demo/branches-demo.ts');
      const summary = await runBranchesDemo({ ...options, branches }).finally(() => progress.end());
      const exit = areGood(summary) ? EXIT.done : EXIT.failed;
      return { json: summary, text: branchesText(summary), exit };
    }
    const { runDemo } = await import('../demo/demo.ts');
    const summary = await runDemo(options).finally(() => progress.end());
    return {
      json: summary,
      text: summaryText(summary),
      exit: isGood(summary) ? EXIT.done : EXIT.failed,
    };
  },
});

function viewText({ atPlatform, inMirror, inBranches, callbacks, polls, refreshes }: DemoView): string {
  const mirrors = inBranches === undefined ? 'in the mirror' : `at the hub, ${inBranches} in the branches`;
  return `orders: ${atPlatform} at the platform, ${inMirror} ${mirrors} | ${callbacks} callbacks, ${polls} polls, ${refreshes} token refreshes`;
}

function isGood({ differences, pos, violations, deadTokenUses }: DemoSummary): boolean {
  const isEqual = differences.length === 0 && pos.stocksEqual === pos.stocks;
  return isEqual && violations === 0 && deadTokenUses === 0;
}

function summaryText(summary: DemoSummary): string {
  const { traffic, pos } = summary;
  const table = fields({
    'orders at the platform': summary.atPlatform,
    'orders in the mirror': summary.inMirror,
    'equal on both sides': summary.equal,
    'status changes': traffic.advanced,
    'changed without a callback': traffic.changed,
    'hidden from the webhook': traffic.hidden,
    'announced again': traffic.repeated,
    'callbacks sent': summary.callbacks,
    'order polls': summary.polls,
    'orders booked by the POS': pos.booked,
    'sold over the counter': pos.soldOverTheCounter,
    'stock counts handed over': pos.pushed,
    'calls that carried them': summary.pushCalls,
    'stocks equal on both sides': `${pos.stocksEqual} of ${pos.stocks}`,
    'token refreshes': summary.refreshes,
    'restarts in between': summary.restarts,
    'limits broken': summary.violations,
    'dead refresh tokens used': summary.deadTokenUses,
  });
  const differences = summary.differences.slice(0, 20).map((text) => `  ${text}\n`);
  const verdict = isGood(summary)
    ? 'Mirror and platform are equal, order by order and stock by stock, and no rule was broken.\n'
    : `Not equal, or a rule was broken:\n${differences.join('')}`;
  return `\n${table}\n${verdict}`;
}

function areGood({ differences, branches, violations, deadTokenUses }: BranchesDemoSummary): boolean {
  const areEqual = branches.every(
    (each) => each.differences.length === 0 && each.stocksEqual === each.stocks,
  );
  return areEqual && differences.length === 0 && violations === 0 && deadTokenUses === 0;
}

function branchesText(summary: BranchesDemoSummary): string {
  const { branches, away, traffic } = summary;
  const of = table(
    branches,
    {
      BRANCH: 'branch',
      'AT PLATFORM': 'atPlatform',
      'IN ITS MIRROR': 'inMirror',
      EQUAL: 'equal',
      BOOKED: 'booked',
      'SOLD OVER THE COUNTER': 'soldOverTheCounter',
      'STOCKS EQUAL': ({ stocksEqual, stocks }) => `${stocksEqual} of ${stocks}`,
    },
    ['AT PLATFORM', 'IN ITS MIRROR', 'EQUAL', 'BOOKED', 'SOLD OVER THE COUNTER', 'STOCKS EQUAL'],
  );
  const more = fields({
    'orders at the platform, and equal at the hub': `${summary.atPlatform}, ${summary.equal}`,
    'status changes': traffic.advanced,
    'callbacks sent, order polls': `${summary.callbacks}, ${summary.polls}`,
    'off the net':
      away === null
        ? 'nobody: it ended before'
        : `${away.branch} for ${formatDuration(away.awayMs)}; ${away.missedEvents} steps waited for it and ` +
          `${away.keptChanges} changes at it; caught up in ${formatDuration(away.caughtUpMs)}`,
    'limits broken': summary.violations,
    'dead refresh tokens used': summary.deadTokenUses,
  });
  const differences = [
    ...summary.differences.map((text) => `hub: ${text}`),
    ...branches.flatMap((each) => each.differences.map((text) => `${each.branch}: ${text}`)),
  ];
  const told = differences.slice(0, 20).map((text) => `  ${text}\n`);
  const verdict = areGood(summary)
    ? 'The mirror of each branch and the platform are equal, order by order and stock by stock, and no rule was broken.\n'
    : `Not equal, or a rule was broken:\n${told.join('')}`;
  return `\n${of}\n${more}\n${verdict}`;
}

/** Shortest interval between order polls that the platform's document allows. */
const ORDERS_INTERVAL_MS = 120_000;
const ORDERS_EVERY_MS = 10_000;

export const sandbox = command({
  description: 'Run a local test platform, without an account',
  examples: [
    'sandbox --port 9090 --orders-every 5s',
    'sandbox --callback-url http://127.0.0.1:8787/webhook --envelope array',
  ],
  options: {
    '--host <host>': withDefault('Address to listen on', '127.0.0.1'),
    '--port <port>': whole('Port to listen on; 0 picks a free one', 0, 0),
    '--seed <n>': whole('Seed for the simulated products', 0, 1),
    '--orders-every <duration>': parsed(
      'Time between new orders; 0s for none (default: 10s)',
      duration('--orders-every'),
    ),
    '--orders-interval <duration>': parsed(
      'Minimum time between two calls of GET /order/all (default: 2m)',
      duration('--orders-interval'),
    ),
    '--envelope <shape>': choice(
      'Shape of the answer of GET /order/all',
      ['array', 'data', 'docs', 'orders'],
      'docs',
    ),
    '--record <style>': choice(
      'Spelling of the orders of GET /order/all',
      ['notification', 'internal', 'snake'],
      'notification',
    ),
    '--callback-url <url>': 'Address to send callbacks to from the start',
  },
  async run({ cli, options }) {
    const { PUBLISHED_LIMITS, startSandboxPlatform } = await import('../demo/sandbox-platform.ts');
    const { clock, random, signal, stdout, env } = cli;
    const { host, port, seed, envelope, record, callbackUrl } = options;
    const secret = env.TILLSYNC_WEBHOOK_SECRET?.split('\n')[0] ?? '';
    const platform = await startSandboxPlatform({
      clock,
      random,
      log: silentLog,
      host,
      port,
      seed,
      limits: { ...PUBLISHED_LIMITS, ordersIntervalMs: options.ordersInterval ?? ORDERS_INTERVAL_MS },
      ordersEveryMs: options.ordersEvery ?? ORDERS_EVERY_MS,
      shape: { envelope, record },
      ...(callbackUrl !== undefined && { webhook: { callbackUrl, secret } }),
    }).catch((cause) => {
      const why = cause instanceof Error ? cause.message : String(cause);
      throw new TillsyncError('usage', `The sandbox cannot listen on ${host}:${port}: ${why}`, {
        hint: 'Choose another --host or --port; port 0 picks a free one.',
        cause,
      });
    });
    if (options.json) writeJson(cli, { url: platform.url, ...platform.tokens });
    else stdout.write(welcome(platform));
    try {
      await aborted(signal);
    } finally {
      await platform.close();
    }
    cli.stderr.write(`The sandbox has ended; it made ${platform.orders()} orders.\n`);
    return {};
  },
});

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
