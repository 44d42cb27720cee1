import { hasCode } from '../../domain/errors.ts';
import type { Clock } from '../../domain/time/clock.ts';
import type { Transport } from '../../platform/transport.ts';
import type { CallOutcome, Counters } from './counters.ts';

/** Counts every request that really leaves, renewals of the tokens included. */
export function measuredTransport(
  transport: Transport,
  { calls, callSeconds }: Counters,
  clock: Clock,
): Transport {
  return {
    async send(request) {
      const endpoint = request.endpoint ?? 'other';
      const startMs = clock.monotonicMs();
      let outcome: CallOutcome = 'unreachable';
      try {
        const answer = await transport.send(request);
        outcome = outcomeOf(answer.status);
        return answer;
      } catch (error) {
        if (hasCode(error, 'aborted')) outcome = 'aborted';
        else if (hasCode(error, 'platform-garbled')) outcome = 'garbled';
        throw error;
      } finally {
        calls.add(1, { endpoint, outcome });
        callSeconds.observe((clock.monotonicMs() - startMs) / 1000, { endpoint });
      }
    },
    close: () => transport.close(),
  };
}

function outcomeOf(status: number): CallOutcome {
  if (status >= 200 && status < 300) return 'ok';
  if (status === 401) return 'unauthorized';
  if (status === 403) return 'forbidden';
  if (status === 429) return 'rate_limited';
  return status >= 500 ? 'server_error' : 'client_error';
}
