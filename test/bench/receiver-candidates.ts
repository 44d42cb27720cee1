import { ordersInMirror } from './bench-sink.ts';
import { openPostgresRival } from './postgres-rival.ts';
import { SECRET, type ServerProcess, startServer } from './server-process.ts';
import { openWebhookRival } from './webhook-rival.ts';

/** A way to receive callbacks, measured under the same load as the others. */
export interface Candidate {
  /** The candidate's name in a table or a plot. */
  label: string;
  /** Meaning and bound of tillsync's ratio to this candidate; undefined for tillsync itself. */
  against?: { what: string; bound: string };
  /** Description of the candidate, so that a reader can judge whether the comparison is fair. */
  about: string;
  /** Starts a new server with an empty store in `directory`. */
  start(directory: string): Promise<ServerProcess>;
  /** Returns the number of orders in the candidate's store while the candidate runs; undefined if it stores nothing. */
  stored?(directory: string): number | Promise<number>;
  /** Whether deliveries may fail. Otherwise a failed delivery ends the bench. */
  mayFail: boolean;
  close?(): void;
}

/** A candidate whose programs this machine lacks. */
export interface Missing {
  what: string;
  reason: string;
}

export const TILLSYNC: Candidate = {
  label: 'tillsync',
  about: 'order, items, modifiers and event, one commit for all that arrive together',
  start: (directory) => startServer('receiver-server.ts', 'tillsync', directory, SECRET),
  stored: ordersInMirror,
  mayFail: false,
};

const STORING_NOTHING: Candidate = {
  label: 'storing nothing',
  against: { what: 'the same without storing', bound: '>= 0.40' },
  about: 'the same Fastify: secret checked, JSON parsed',
  start: (directory) => startServer('receiver-server.ts', 'bare', directory, SECRET),
  mayFail: false,
};

const COMMIT_EACH: Candidate = {
  label: 'a commit for each',
  against: { what: 'a commit for each', bound: '>= 4' },
  about: 'the same Fastify, the same rows, SQLite in WAL and FULL',
  start: (directory) => startServer('receiver-server.ts', 'per-request', directory, SECRET),
  stored: ordersInMirror,
  mayFail: true,
};

/**
 * Returns tillsync first, then two reference servers, then the alternatives of a user for which this machine has the
 * programs. The other alternatives are in `missing`.
 */
export async function openCandidates(): Promise<{ candidates: Candidate[]; missing: Missing[] }> {
  const rivals = [await openPostgresRival(), openWebhookRival()];
  return {
    candidates: [TILLSYNC, STORING_NOTHING, COMMIT_EACH, ...rivals.filter((rival) => 'start' in rival)],
    missing: rivals.filter((rival) => 'reason' in rival),
  };
}
