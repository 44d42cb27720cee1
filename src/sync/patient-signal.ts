import type { Clock } from '../domain/time/clock.ts';

/** How long a call under way may go on after the wish to stop; the whole process has ten seconds. */
const PATIENCE_MS = 7_000;

/**
 * A signal for one call that follows `signal` at once while the call only waits for its turn, and with patience
 * once it is sent: its answer is worth having, and cutting it off would only leave its fate unknown.
 */
export function patientSignal(
  signal: AbortSignal,
  clock: Clock,
): { signal: AbortSignal; onSend: () => void; end: () => void } {
  const follower = new AbortController();
  const ended = new AbortController();
  let sent = false;
  const follow = () => {
    if (!sent) follower.abort();
    else void clock.sleep(PATIENCE_MS, ended.signal).then(() => follower.abort());
  };
  if (signal.aborted) follow();
  signal.addEventListener('abort', follow, { once: true });
  return {
    signal: follower.signal,
    onSend: () => {
      sent = true;
    },
    end() {
      signal.removeEventListener('abort', follow);
      ended.abort();
    },
  };
}
