import { hasCode } from '../../domain/errors.ts';
import type { Clock } from '../../domain/time/clock.ts';
import { InboxProcess } from '../../store/inbox/inbox-process.ts';

/** How often a command tries a file that a POS has locked. */
const TRY_EVERY_MS = 100;
const LOCKED_MAX_MS = 10_000;

export interface LookIntoInboxOptions {
  path: string;
  group?: string | undefined;
  clock: Clock;
  signal?: AbortSignal | undefined;
}

/**
 * Asks the process that opens the inbox for a command, and ends it. Waits ten seconds for a POS that has locked the
 * file. Throws what `InboxProcess.ask` throws.
 */
export async function lookIntoInbox<T>(
  { path, group, clock, signal }: LookIntoInboxOptions,
  look: (ask: InboxProcess['ask']) => Promise<T>,
): Promise<T> {
  const inbox = new InboxProcess({ path, group, signal });
  const endMs = clock.monotonicMs() + LOCKED_MAX_MS;
  const ask: InboxProcess['ask'] = async (request) => {
    for (;;) {
      try {
        return await inbox.ask(request);
      } catch (error) {
        if (!hasCode(error, 'storage-busy') || clock.monotonicMs() >= endMs || signal?.aborted) throw error;
      }
      await clock.sleep(TRY_EVERY_MS, signal);
    }
  };
  try {
    return await look(ask);
  } finally {
    await inbox.close();
  }
}
