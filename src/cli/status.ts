import { shopName } from '../app/installation.ts';
import type { holdBackStates, ReadOnlyServices, storedVerdict } from '../app/read-only-services.ts';
import { configWarnings, readSetup } from '../config/config.ts';
import type { Config } from '../config/config-type.ts';
import { isBranch } from '../config/roles.ts';
import { hasCode, TillsyncError } from '../core/errors.ts';
import { whenFree } from '../core/loop.ts';
import { isoUtc } from '../core/time.ts';
import { authReport } from './auth.ts';
import type { Cli } from './cli.ts';
import { command, type Result, sourceOf, spokenFaults, withReaders } from './command.ts';
import { speaker } from './speech.ts';
import { statusPageOf } from './status-page.ts';
import { type StatusReport, statusText } from './status-text.ts';

const WATCH_EVERY_MS = 2000;
const CLEAR_SCREEN = '\u001b[H\u001b[2J';

export const status = command({
  description: 'Show how current the data is and what needs attention',
  examples: ['status', 'status --watch', 'status --json'],
  options: { '--watch': 'Refresh every 2 seconds' },
  async run(call) {
    const { cli, options } = call;
    const { clock, signal, stdout } = cli;
    if (options.json && options.watch) {
      throw new TillsyncError('usage', '--json prints one document, so it cannot be watched.');
    }
    const setup = readSetup(sourceOf(call));
    const key = 'secrets' in setup ? setup.secrets.localApiKey : undefined;
    const shown = withReaders(call, async (readers, config): Promise<Result> => {
      const { storedVerdict: judge, holdBackStates: heldBack } = await import('../app/read-only-services.ts');
      const say = speaker(config, clock);
      const look = () => statusOf(cli, readers, config, { judge, heldBack });
      for (;;) {
        const report = await whenFree(clock, look, undefined, signal);
        const above = configWarnings(config).map((warning) => `${say(`Warning: ${warning}`)}\n`);
        if (!options.watch) {
          // Only for who can read the key: on a screen that others watch, it is not shown.
          const page = key === undefined ? null : statusPageOf(config, key);
          const link = page === null ? '' : `${say(`Status page: ${page}`)}\n`;
          return { json: report, text: statusText(report, say) + link, above: above.join('') };
        }
        stdout.write((stdout.isTTY ? CLEAR_SCREEN : '') + statusText(report, say));
        await clock.sleep(WATCH_EVERY_MS, signal);
        if (signal.aborted) return {};
        if (!stdout.isTTY) stdout.write('\n');
      }
    });
    return spokenFaults(call, shown);
  },
});

function statusOf(
  { clock }: Cli,
  readers: ReadOnlyServices,
  config: Config,
  { judge, heldBack }: { judge: typeof storedVerdict; heldBack: typeof holdBackStates },
): StatusReport {
  const nowMs = clock.nowMs();
  const { tokens, stateFault, ...state } = tokensAndWaits(readers, nowMs);
  return {
    at: isoUtc(nowMs),
    shop: shopName(config),
    currency: config.shop.currency || null,
    storage: config.storage.directory,
    ...judge({ readers, config, clock, tokens, stateFault, running: state.running }),
    freshness: readers.mirror.health.freshness(),
    holdBack: heldBack(readers.mirror, config),
    alarms: readers.alarms(),
    ...state,
    // A branch has no tokens, so their state is left out.
    ...(isBranch(config) && { auth: null }),
    counts: readers.counts(),
  };
}

/**
 * Reads state.db, which only the daemon's user may read. If it is unreadable, the rest of the report is still made.
 */
function tokensAndWaits(readers: ReadOnlyServices, nowMs: number) {
  try {
    const [running, tokens, waits] = [readers.isRunning(), readers.tokens(), readers.waits()];
    return { running, tokens, stateFault: null, auth: authReport(tokens, nowMs), waits };
  } catch (error) {
    if (!(error instanceof TillsyncError) || error.code === 'storage-busy') throw error;
    const { message } = error;
    // A lack of permission is no fault of the file.
    const stateFault = hasCode(error, 'storage-corrupt', 'storage-newer') ? message : null;
    return { running: null, tokens: null, stateFault, auth: null, authFault: message, waits: [] };
  }
}
