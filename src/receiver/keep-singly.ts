import { asTillsyncError, hasCode, type TillsyncError } from '../domain/errors.ts';
import type { IntakeEntry, IntakeOutcome, OrderKeeper } from '../domain/order/order-intake.ts';

/** Told of each entry by its index: what was kept in the end and with which outcome, or why nothing was. */
export type SettleEntry = (index: number, entry: IntakeEntry, result: IntakeOutcome | TillsyncError) => void;

/**
 * Keeps entries one by one after their group was refused, so that one that the store cannot take refuses none
 * of its neighbours. Such an order goes to quarantine whole. As soon as the disk itself proves to be at fault,
 * the rest is refused untried.
 */
export async function keepSingly(
  keeper: OrderKeeper,
  entries: readonly IntakeEntry[],
  settle: SettleEntry,
): Promise<void> {
  for (const [index, entry] of entries.entries()) {
    const result = await keepOrQuarantine(keeper, entry);
    if ('error' in result && isOfTheDisk(result.error)) {
      for (let rest = index; rest < entries.length; rest++) {
        settle(rest, entries[rest] ?? entry, result.error);
      }
      return;
    }
    if ('error' in result) settle(index, entry, result.error);
    else settle(index, result.entry, result.outcome);
  }
}

/** A fault that every entry would meet alike. `storage-failed` may also be one entry that breaks a constraint. */
export function isOfTheWholeDisk(error: unknown): boolean {
  return hasCode(
    error,
    'storage-busy',
    'storage-full',
    'storage-readonly',
    'storage-corrupt',
    'storage-newer',
    'aborted',
  );
}

/** As above, for an entry that could not even be quarantined: then `storage-failed` is the disk as well. */
function isOfTheDisk(error: TillsyncError): boolean {
  return isOfTheWholeDisk(error) || error.code === 'storage-failed';
}

type SingleResult = { entry: IntakeEntry; outcome: IntakeOutcome } | { error: TillsyncError };

async function keepOrQuarantine(keeper: OrderKeeper, entry: IntakeEntry): Promise<SingleResult> {
  const first = await keepOne(keeper, entry);
  if ('outcome' in first || entry.kind !== 'order' || isOfTheWholeDisk(first.error)) return first;
  const { source, observedAtMs, raw } = entry.observation;
  const reason = `The mirror could not take this order (${first.error.code}).`;
  return await keepOne(keeper, {
    kind: 'unreadable',
    unreadable: { source, receivedAtMs: observedAtMs, reason, payload: raw },
  });
}

async function keepOne(keeper: OrderKeeper, entry: IntakeEntry): Promise<SingleResult> {
  try {
    const [outcome] = await keeper.keep([entry]);
    if (outcome === undefined) throw new Error('The store gave no outcome.');
    return { entry, outcome };
  } catch (error) {
    return { error: asTillsyncError(error) };
  }
}
