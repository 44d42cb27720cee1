import { type Command, Option } from 'commander';
import type { SandboxPlatform, SandboxPlatformOptions } from '../../daemon/demo/sandbox-platform.ts';
import { TillsyncError } from '../../domain/errors.ts';
import { silentLog } from '../../domain/log.ts';
import type { Cli } from '../cli.ts';
import { type JsonOption, newResultCommand, wholeNumberOption } from '../new-command.ts';
import { durationOption } from '../options/duration-option.ts';

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
    .action((options: SandboxOptions) => run(cli, options));
}

async function run(cli: Cli, options: SandboxOptions): Promise<void> {
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
  const { PUBLISHED_LIMITS, startSandboxPlatform } = await import('../../daemon/demo/sandbox-platform.ts');
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
