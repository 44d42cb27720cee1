import type { OutboxEntry } from '../../daemon/reading/read-stores.ts';
import { ADDRESS_KEYS } from '../../domain/change/change.ts';
import { table } from './table.ts';
import { timeTitle, when } from './when.ts';

const ADDRESS: ReadonlySet<string> = new Set(ADDRESS_KEYS);

/** What a change says, without its address: `qty 5, show true`. */
export function valuesText(body: object): string {
  return Object.entries(body)
    .filter(([key]) => !ADDRESS.has(key))
    .map(([key, value]) => `${key} ${typeof value === 'string' ? JSON.stringify(value) : String(value)}`)
    .join(', ');
}

/** How a change names its product and branch: `externalId A-1, subsidiaryId sub-1`. */
export function addressText(body: object): string {
  return Object.entries(body)
    .filter(([key]) => ADDRESS.has(key))
    .map(([key, value]) => `${key} ${String(value)}`)
    .join(', ');
}

/** `held` where the change waits for a person. */
export function stateOf({ state, heldGuard }: Pick<OutboxEntry, 'state' | 'heldGuard'>): string {
  return state === 'pending' && heldGuard !== null ? 'held' : state;
}

/** Changes of the outbox for people, times in the company's zone. */
export function outboxTable(entries: readonly OutboxEntry[], timeZone: string): string {
  return table<OutboxEntry>(
    [
      { title: 'CHANGE', cell: (entry) => entry.changeId, align: 'right' },
      { title: 'KIND', cell: (entry) => entry.kind },
      { title: 'STATE', cell: stateOf },
      { title: 'FOR', cell: (entry) => addressText(entry.body) || entry.target },
      { title: 'VALUES', cell: (entry) => valuesText(entry.body) },
      { title: 'TRIES', cell: (entry) => entry.attempts, align: 'right' },
      { title: timeTitle('HANDED OVER', timeZone), cell: (entry) => when(entry.createdAt, timeZone) },
      { title: 'WHY', cell: (entry) => entry.message },
    ],
    entries,
  );
}
