import { command, whole, withReaders } from './command.ts';
import { instant } from './options.ts';
import { table, when } from './table.ts';

export const audit = command({
  description: 'Show who did what',
  examples: ['audit', 'audit --since 2026-03-01', 'audit --since 2026-03-01T18:30 --json'],
  options: {
    '--since <time>': 'From this day or time (example: 2026-03-01T18:30)',
    '--limit <n>': whole('Newest entries to show at most (default: 1000)', 1, 1000),
  },
  more: '\nTo see who sent a change, run: tillsync outbox list\nEntries are stored for 400 days.',
  run: (call) =>
    withReaders(call, async ({ mirror }, config) => {
      const { readStores } = await import('../app/read-only-services.ts');
      const { timezone } = config.orders;
      const { limit } = call.options;
      const since = instant('--since', call.options.since, timezone);
      const stores = readStores(mirror, config, call.cli.clock);
      const entries = stores.read(({ audit }) => audit.list({ since, limit }));
      if (entries.length === 0) return { json: { audit: entries }, above: 'Nothing was noted.\n' };
      const text = table(entries, {
        [`WHEN (${timezone})`]: (entry) => when(entry.at, timezone),
        WHO: 'who',
        DID: 'action',
        'ON WHAT': 'subject',
        DETAIL: 'detail',
      });
      return { json: { audit: entries }, text };
    }),
});
