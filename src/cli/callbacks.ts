import { isoUtc } from '../core/time.ts';
import type { CallbackFault, KeptCallback } from '../orders/receiving/callback-log.ts';
import { writeJsonLine } from './cli.ts';
import { command, JSON_LINES, type Result, refuseEndless, whole, withReaders } from './command.ts';
import { table, when } from './table.ts';

const LOOK_EVERY_MS = 1_000;
const LIST_MAX = 1_000;

/** Reasons why a callback was not stored as an order, in words for a person. */
const FAULTS: Record<CallbackFault, string> = {
  'secret-missing': 'it carries no secret',
  'secret-wrong': 'it carries another secret than the one that is agreed',
  'no-callback': 'it is no callback: no secret and no JSON',
  'too-large': 'it is larger than webhook.body_limit',
  'not-json': 'the body is not JSON; it is in quarantine',
  'not-decoded': 'its Content-Encoding cannot be read; it is in quarantine',
  unreadable: 'no order was found in it; it is in quarantine',
  'not-kept': 'it could not be kept; the sender was asked to come again',
  'cut-off': 'the sender was gone before the answer',
};

export const log = command({
  description: 'Show the last callbacks and how they were answered',
  examples: ['webhook log', 'webhook log --follow', 'webhook log --limit 100 --json'],
  options: {
    '--limit <n>': whole(`Callbacks to show at most, of the last ${LIST_MAX}`, 1, 20),
    '-f, --follow': 'Follow new callbacks until Ctrl-C, a few seconds late',
    '--json [lines]': JSON_LINES,
  },
  async run(call) {
    const { cli, options } = call;
    const { limit, follow, json } = options;
    refuseEndless('What is followed', options);
    return withReaders(call, async (readers, config): Promise<Result> => {
      let callbacks = readers.callbacks(0, limit);
      if (json === true) return { json: { callbacks: callbacks.map(documentOf) } };
      if (callbacks.length === 0) cli.stderr.write('No callback has come yet.\n');
      let after = 0;
      for (;;) {
        if (json === 'lines') for (const each of callbacks) writeJsonLine(cli, documentOf(each));
        else if (callbacks.length > 0) {
          const text = callbackTable(callbacks, config.orders.timezone);
          cli.stdout.write(after === 0 ? text : text.slice(text.indexOf('\n') + 1));
        }
        after = callbacks.at(-1)?.id ?? after;
        if (!follow) return {};
        await cli.clock.sleep(LOOK_EVERY_MS, cli.signal);
        if (cli.signal.aborted) return {};
        callbacks = readers.callbacks(after, LIST_MAX);
      }
    });
  },
});

function documentOf({ atMs, ...callback }: KeptCallback) {
  return { at: isoUtc(atMs), ...callback };
}

function callbackTable(callbacks: readonly KeptCallback[], timezone: string): string {
  return table(
    callbacks,
    {
      [`CAME (${timezone})`]: ({ atMs }) => when(isoUtc(atMs), timezone),
      ANSWER: ({ status }) => status ?? 'none',
      ORDER: ({ code, orderId }) => (code === null ? orderId : `#${code}`),
      STATUS: 'orderStatus',
      FROM: 'from',
      TIMES: 'count',
      WHY: ({ fault, isProbe }) =>
        [fault && FAULTS[fault], isProbe && 'tried by tillsync itself'].filter(Boolean).join('; ') || null,
    },
    ['TIMES'],
  );
}
