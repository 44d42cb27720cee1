import { counted, TillsyncError } from '../core/errors.ts';
import { compileSpellings } from '../orders/merging/field-aliases.ts';
import type { QuarantineEntry } from '../orders/reading/order-queries.ts';
import { removeFromQuarantine } from '../orders/receiving/quarantine.ts';
import { type RetryReport, retryQuarantined } from '../orders/receiving/replay.ts';
import { EXIT, printable } from './cli.ts';
import { type Call, command, group, LIMIT, withReaders, withServices } from './command.ts';
import { instant, wholeNumber } from './options.ts';
import { PAYLOAD, receivedResult } from './received.ts';
import { table, when, whenIn } from './table.ts';

const list = command({
  description: 'List unreadable data, newest first',
  examples: ['quarantine list', 'quarantine list --limit 100 --json'],
  options: {
    '--since <time>': 'Received from this day or time (example: 2026-03-01T18:30)',
    '--limit <n>': LIMIT,
  },
  run: (call) =>
    withReaders(call, ({ mirror }, config) => {
      const { timezone } = config.orders;
      const since = instant('--since', call.options.since, timezone) ?? '';
      const quarantine = mirror.quarantine
        .list(call.options.limit)
        .filter(({ receivedAt }) => receivedAt >= since);
      if (quarantine.length === 0) return { json: { quarantine }, above: 'Nothing is in quarantine.\n' };
      return { json: { quarantine }, text: entryTable(quarantine, timezone) };
    }),
});

function entryTable(entries: readonly QuarantineEntry[], timezone: string): string {
  return table(
    entries,
    {
      ID: 'quarantineId',
      FROM: 'source',
      [`RECEIVED (${timezone})`]: (entry) => when(entry.receivedAt, timezone),
      SEEN: 'seen',
      BYTES: 'bytes',
      WHY: 'reason',
    },
    ['ID', 'SEEN', 'BYTES'],
  );
}

const ID = wholeNumber('ID', 1);

/** Returns the id of the named entry, or undefined for `--all`. Throws `usage` unless exactly one of both is given. */
function idOrAll({ options, argument }: Call<{ all?: boolean | undefined }, string | undefined>) {
  const id = argument === undefined ? undefined : ID(argument);
  if ((id === undefined) !== !options.all) return id;
  throw new TillsyncError('usage', 'Name one entry by its id, or take every one with --all.');
}

const show = command({
  description: 'Show an entry and its data',
  examples: ['quarantine show 12', 'quarantine show 12 --payload > received.json'],
  argument: ['<id>', 'ID as in `quarantine list`'],
  options: { '--payload': PAYLOAD },
  async run(call) {
    const id = ID(call.argument);
    return withReaders(call, ({ mirror }, config) => {
      const entry = mirror.quarantine.get(id);
      if (entry === undefined) throw noSuchEntry(id);
      return receivedResult(call, entry, {
        id: entry.quarantineId,
        from: entry.source,
        received: whenIn(entry.receivedAt, config.orders.timezone),
        seen: entry.seen,
        bytes: entry.bytes,
        why: entry.reason,
      });
    });
  },
});

function noSuchEntry(id: number): TillsyncError {
  return new TillsyncError('not-found', `Nothing lies in quarantine under ${id}.`, {
    hint: 'See what does with: {tillsync} quarantine list',
  });
}

const ALL_MAX = 10_000;

const retry = command({
  description: 'Read entries again and store the orders that are readable now',
  examples: ['quarantine retry 12', 'quarantine retry --all'],
  argument: ['[id]', 'ID as in `quarantine list`'],
  options: { '--all': 'Every entry' },
  async run(call) {
    const { cli, options } = call;
    const id = idOrAll(call);
    return withServices(call, async ({ services: { mirror, stores }, config, progress }) => {
      const { fields, statuses, timezone } = config.orders;
      const { listPath } = config.quirks;
      const rules = { spellings: compileSpellings(fields, timezone, statuses), listPath };
      // The list has the newest entry first, so it is reversed: entries are retried in the order of their arrival.
      const all = () => mirror.quarantine.list(ALL_MAX).map((entry) => entry.quarantineId);
      const ids = id === undefined ? all().reverse() : [id];
      const results: ({ quarantineId: number } & RetryReport)[] = [];
      for (const [done, quarantineId] of ids.entries()) {
        if (cli.signal.aborted) break;
        progress.count('entries read again', done, ids.length);
        const entry = mirror.quarantine.get(quarantineId);
        if (entry === undefined) throw noSuchEntry(quarantineId);
        const report = await retryQuarantined(entry, mirror, rules);
        const detail = `${report.kept.length} orders mirrored${report.unreadable.length > 0 ? '; it stays' : ''}`;
        const auditEvent = {
          who: cli.who,
          action: 'quarantine.retry',
          subject: `entry ${quarantineId}`,
          detail,
        } as const;
        await stores.write(({ db, audit }) => {
          if (report.unreadable.length === 0) removeFromQuarantine(db, quarantineId);
          audit.note(auditEvent);
        });
        results.push({ quarantineId, ...report });
        if (!options.json) progress.note(entryText(quarantineId, report));
      }
      const stay = results.some((result) => result.unreadable.length > 0) || results.length < ids.length;
      const kept = results.reduce((total, result) => total + result.kept.length, 0);
      return {
        json: { results },
        text: `${kept} orders were mirrored from ${results.length} entries.\n`,
        exit: stay ? EXIT.partial : EXIT.done,
      };
    });
  },
});

function entryText(quarantineId: number, { kept, overtaken, unreadable }: RetryReport): string {
  const parts = [
    ...(kept.length > 0 ? [`${kept.length} orders mirrored`] : []),
    ...(overtaken.length > 0 ? [`${overtaken.length} already known newer`] : []),
    ...(unreadable.length > 0 ? [`stays: ${unreadable[0]}`] : []),
  ];
  return printable(`${quarantineId}: ${parts.join(', ') || 'holds no orders'}`);
}

const remove = command({
  description: 'Delete entries that are no longer needed',
  examples: ['quarantine delete 12', 'quarantine delete --all'],
  argument: ['[id]', 'ID as in `quarantine list`'],
  options: { '--all': 'Every entry' },
  more: '\nRun `quarantine retry` first: it stores the orders that are readable now. A record that no poll can read returns while\nthe platform lists it. Name its fields in [orders.fields].',
  async run(call) {
    const id = idOrAll(call);
    return withServices(call, async ({ services: { mirror, stores }, config }) => {
      const all = mirror.quarantine.list(ALL_MAX);
      const asked = id === undefined ? all : all.filter(({ quarantineId }) => quarantineId === id);
      if (id !== undefined && asked.length === 0) throw noSuchEntry(id);
      const deleted = await stores.write(({ db, audit }) =>
        asked.filter(({ quarantineId, source, receivedAt }) => {
          const isRemoved = removeFromQuarantine(db, quarantineId);
          const auditEvent = {
            who: call.cli.who,
            action: 'quarantine.delete',
            subject: `entry ${quarantineId}`,
            detail: `from the ${source}, received ${receivedAt}`,
          } as const;
          if (isRemoved) audit.note(auditEvent);
          return isRemoved;
        }),
      );
      if (deleted.length === 0) return { json: { deleted }, above: 'Nothing is in quarantine.\n' };
      const again = deleted.some(({ source }) => source === 'poll')
        ? 'What a poll could not read comes back while the platform lists it: name its fields in [orders.fields].\n'
        : '';
      return {
        json: { deleted },
        text: entryTable(deleted, config.orders.timezone),
        below: `${counted(deleted.length, 'entry', 'entries')} deleted.\n${again}`,
      };
    });
  },
});

export const quarantine = group('Inspect, retry or delete data that could not be read', {
  list,
  show,
  retry,
  delete: remove,
});
