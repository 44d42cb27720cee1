/** One request as it reaches the sandbox, from a socket or from a simulation in the same process. */
export interface SandboxRequest {
  method: string;
  /** Path with its query, such as `/order/all?startDate=2026-01-01`. */
  url: string;
  /** Names in lower case. */
  headers: Record<string, string | undefined>;
  body?: string | Uint8Array | undefined;
  /** The caller gave up: ends a hang. */
  signal?: AbortSignal | undefined;
}

/** What the caller gets. */
export type SandboxAnswer =
  | {
      kind: 'answer';
      status: number;
      headers: Record<string, string>;
      body: string;
      /** The body trickles over this time. */
      slowMs: number;
    }
  /** The connection ends; `partial` is what went out before. */
  | { kind: 'dropped'; partial?: { status: number; headers: Record<string, string>; body: string } };

/** Outcome of an endpoint's work, before headers and faults. */
export interface Reply {
  status: number;
  body?: unknown;
  /** The body as JSON, where it is written already. */
  json?: string;
  headers?: Record<string, string>;
}

/** The envelope of the modification endpoints and the webhook configuration. */
export function envelope(data: unknown, message = 'OK'): Reply {
  return { status: 200, body: { success: true, message, data } };
}

/** A failed operation: the document's success: false. */
export function refusal(status: number, message: string): Reply {
  return { status, body: { success: false, message, data: {} } };
}

/** Bodies of 4xx and 5xx are not shown in the document; this is a common plain one. */
export function failure(status: number, message: string, headers: Record<string, string> = {}): Reply {
  return { status, body: { success: false, statusCode: status, message }, headers };
}
