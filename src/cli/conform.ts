import { writeFileSync } from 'node:fs';
import { TillsyncError } from '../core/errors.ts';
import { parseDurationMs } from '../core/time.ts';
import { EXIT } from './cli.ts';
import { choice, command, parsed, whole, withDefault } from './command.ts';
import { Progress } from './progress.ts';

const WAYS = ['sql', 'http', 'stream', 'hook', 'files'] as const;
const ID_MAX = 38;
const LEAD_MAX_MS = 2 * 86_400_000;

export const conform = command({
  description: 'Test a POS against the required behaviours',
  examples: [
    'conform -- php till.php',
    'conform --only 3,5 -- ./till',
    'conform --lead 20m -- php till.php',
    'conform --channel http --certificate till.html --name "Caja 4.2" -- mono Till.exe',
  ],
  argument: ['[command...]', 'Command that starts the till, after -- (default: start it yourself)'],
  options: {
    '--channel <channel>': choice('How the till reads orders and sends counts', WAYS, 'sql'),
    '--only <ids>': parsed('Only these behaviours (example: 3,5)', ids),
    '--lead <duration>': parsed(
      'How long before its time the till prepares a scheduled order (default: 0s; example: 20m)',
      leadMs,
    ),
    '--seed <n>': whole('Seed for the moments at which the till is killed', 0, 1),
    '--certificate <file>': 'Also write the results to this file, as HTML',
    '--name <name>': withDefault('Name of the till on the certificate', 'a till'),
  },
  more: `
The till's environment:
  TILL_STORE      its branch, as in orders and counts
  TILL_MIRROR     mirror.db, to read        TILL_INBOX   inbox.db, to insert into
  TILL_URL        the local API             TILL_KEY     its key (Authorization: Bearer)
  TILL_CONFIG     for tillsync --config     TILL_HOOK_PORT, TILL_HOOK_SECRET   with --channel hook
  PATH            its first tillsync is this tillsync
  TILL_DIRECTORY  for the till's own files
  TILL_ARTICLES   its articles and the stock at the start: a line of column names, then a line each:
                  sku, external_id, name, qty, price; UTF-8, separated by tabs
  TILL_SALES      sales over the counter, a line each as they come: number, sku, qty; no column names;
                  a line counts once its line feed is there
  TILL_REPORT     to append to: "booked TAB order id TAB total", again when the total changes,
                  and "prepare TAB order id", once, when its time comes
  TILL_LEAD       seconds before scheduled_for at which it prepares an order (--lead)

The till must sell nothing else during the test. For what it has to do, see docs/pos.md. Exit code 3: not all passed.`,
  async run({ cli, options, argument }) {
    const { conform: judgeTill } = await import('../conform/conform.ts');
    const { certificateOf, hasPassed, lineOf, textOf } = await import('../conform/report.ts');
    const { channel: way, only = [], lead = 0, seed, certificate, name } = options;
    const progress = new Progress(cli);
    const report = await judgeTill({
      ...{ clock: cli.clock, seed, way, leadS: lead / 1_000, only },
      ...{ command: argument, env: cli.env, signal: cli.signal },
      // The command line that started this process. The kit's script `tillsync` runs the same program.
      program: [process.execPath, ...process.execArgv, process.argv[1] ?? ''],
      onReady(tillEnv) {
        if (argument.length > 0) {
          progress.note(`A platform and tillsync run; the till starts: ${argument.join(' ')}`);
          for (const line of needsOf(way, tillEnv)) progress.note(line);
          return;
        }
        const told = Object.entries(tillEnv).filter(([key]) => key.startsWith('TILL_') || key === 'PATH');
        progress.note(
          'A platform and tillsync run. Start the till within ten minutes with this environment:',
        );
        for (const [key, value] of told) progress.note(`  ${key}=${value}`);
      },
      onBegin: ({ id, does }, number, of) => progress.step(`${number} of ${of}: ${id} ${does}`),
      onJudged: (judgement) => progress.note(lineOf(judgement)),
    }).finally(() => progress.end());
    if (certificate !== undefined) writeCertificate(certificate, certificateOf(report, name));
    if (cli.signal.aborted) throw new TillsyncError('aborted', 'Stopped before all behaviours were judged.');
    return {
      json: { ...report, till: name },
      text: `\n${textOf(report)}`,
      exit: hasPassed(report) ? EXIT.done : EXIT.partial,
    };
  },
});

/** Returns what a till needs for its way, with the values that it gets in its environment. */
function needsOf(way: (typeof WAYS)[number], env: NodeJS.ProcessEnv): string[] {
  if (way === 'sql')
    return [`  It reads TILL_MIRROR=${env.TILL_MIRROR}`, `  and inserts into TILL_INBOX=${env.TILL_INBOX}`];
  if (way === 'files')
    return [`  It runs tillsync, which is first in its PATH, with --config "$TILL_CONFIG"`];
  const api = [
    `  It calls the API at TILL_URL=${env.TILL_URL}`,
    `  with the header "Authorization: Bearer $TILL_KEY", TILL_KEY=${env.TILL_KEY}`,
  ];
  if (way !== 'hook') return api;
  const events = `  It gets events by POST at http://127.0.0.1:$TILL_HOOK_PORT/, TILL_HOOK_PORT=${env.TILL_HOOK_PORT}`;
  return [...api, events, '  signed with TILL_HOOK_SECRET'];
}

function leadMs(text: string): number {
  const ms = parseDurationMs(text);
  if (ms !== undefined && ms % 1_000 === 0 && ms <= LEAD_MAX_MS) return ms;
  throw new TillsyncError(
    'usage',
    `--lead: found "${text}"; allowed: whole seconds up to 2d (example: 20m).`,
  );
}

function ids(text: string): number[] {
  const found = text.split(',').map((each) => (/^\s*\d+\s*$/.test(each) ? Number(each) : 0));
  if (found.every((id) => id >= 1 && id <= ID_MAX)) return found;
  throw new TillsyncError(
    'usage',
    `--only: found "${text}"; allowed: numbers from 1 to ${ID_MAX}, such as 3,5.`,
  );
}

function writeCertificate(file: string, text: string): void {
  try {
    writeFileSync(file, text);
  } catch (cause) {
    const why = cause instanceof Error && 'code' in cause ? String(cause.code) : String(cause);
    throw new TillsyncError('usage', `The certificate cannot be written into ${file} (${why}).`, {
      hint: 'Name another file with --certificate; the verdicts stand above.',
      cause,
    });
  }
}
