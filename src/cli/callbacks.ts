import { type Command, Option } from 'commander';
import { TillsyncError } from '../core/errors.ts';
import { isoUtc } from '../core/time.ts';
import type { Callback, CallbackFault, KeptCallback } from '../orders/callbacks.ts';
import {
  type Cli,
  type GlobalOptions,
  newCommand,
  wholeNumberOption,
  writeJson,
  writeJsonLine,
} from './cli.ts';
import { table, timeTitle, when } from './table.ts';
import { withReaders } from './with-parts.ts';

interface CallbacksTailOptions extends GlobalOptions {
  limit: number;
  follow?: boolean;
  /** `true`: one document; `lines`: one document a line. */
  json?: boolean | 'lines';
}

const LOOK_EVERY_MS = 1_000;
const LIST_MAX = 1_000;

/** Why a callback was not kept as an order, for a person. */
const FAULTS: Record<CallbackFault, string> = {
  'secret-missing': 'it carries no secret',
  'secret-wrong': 'it carries another secret than the one that is agreed',
  'no-callback': 'it is no callback: no secret and no JSON',
  'too-large': 'it is larger than webhook.body_limit',
  'not-json': 'the body is not JSON; it is in quarantine',
  unreadable: 'no order was found in it; it is in quarantine',
  'not-kept': 'it could not be kept; the sender was asked to come again',
  'cut-off': 'the sender was gone before the answer',
};

/** `callbacks tail`: the last callbacks and what was answered. */
export function callbacksTailCommand(cli: Cli): Command {
  return newCommand('tail', 'Print the last callbacks with their answers, and follow them', [
    'callbacks tail',
    'callbacks tail --follow',
    'callbacks tail --limit 100 --json',
  ])
    .option('--limit <n>', `at most this many, of the last ${LIST_MAX}`, wholeNumberOption('--limit', 1), 20)
    .option('-f, --follow', 'go on with new ones until Ctrl-C; they are shown some seconds late')
    .addOption(
      new Option('--json [lines]', 'print one JSON document, or with `lines` one a line').choices(['lines']),
    )
    .action((_options, command: Command) => tail(cli, command.optsWithGlobals()));
}

function tail(cli: Cli, options: CallbacksTailOptions): Promise<void> {
  const { limit, follow = false, json } = options;
  if (follow && json === true) {
    throw new TillsyncError('usage', 'What is followed has no end, so it is no single document.', {
      hint: 'Use --json lines for one document a line.',
    });
  }
  return withReaders(cli, options, async (readers, config) => {
    const { timezone } = config.orders;
    let callbacks = readers.callbacks(0, limit);
    if (json === true) return writeJson(cli, { callbacks: callbacks.map(documentOf) });
    if (callbacks.length === 0) cli.stderr.write('No callback has come yet.\n');
    let after = 0;
    for (;;) {
      if (json === 'lines') for (const each of callbacks) writeJsonLine(cli, documentOf(each));
      else if (callbacks.length > 0) cli.stdout.write(textOf(callbacks, timezone, after === 0));
      after = callbacks.at(-1)?.id ?? after;
      if (!follow) return;
      await cli.clock.sleep(LOOK_EVERY_MS, cli.signal);
      if (cli.signal.aborted) return;
      callbacks = readers.callbacks(after, LIST_MAX);
    }
  });
}

function documentOf({ atMs, ...callback }: KeptCallback) {
  return { at: isoUtc(atMs), ...callback };
}

function textOf(callbacks: readonly KeptCallback[], timezone: string, withHead: boolean): string {
  const text = table<KeptCallback>(
    [
      { title: timeTitle('CAME', timezone), cell: ({ atMs }) => when(isoUtc(atMs), timezone) },
      { title: 'ANSWER', cell: ({ status }) => status ?? 'none' },
      { title: 'ORDER', cell: ({ code, orderId }) => (code === null ? orderId : `#${code}`) },
      { title: 'STATUS', cell: ({ orderStatus }) => orderStatus },
      { title: 'FROM', cell: ({ from }) => from },
      { title: 'TIMES', cell: ({ count }) => count, align: 'right' },
      { title: 'WHY', cell: whyOf },
    ],
    callbacks,
  );
  return withHead ? text : text.slice(text.indexOf('\n') + 1);
}

function whyOf({ fault, isProbe }: Callback): string | null {
  const probe = isProbe ? 'tried by tillsync itself' : null;
  return [fault && FAULTS[fault], probe].filter(Boolean).join('; ') || null;
}
