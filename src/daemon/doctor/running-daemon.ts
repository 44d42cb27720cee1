import { Agent, request } from 'undici';
import type { Config } from '../../config/config-type.ts';

/** What a running daemon says of itself. */
export interface DaemonAnswer {
  url: string;
  /** `down`: nothing answers there. */
  health: 'ok' | 'failing' | 'down';
  /** Loops that are silent for too long. */
  stalled: string[];
  /** Its version; null when it does not tell. */
  version: string | null;
  /** Where nothing answers: what the system said. */
  fault: string | null;
}

const TIMEOUT_MS = 5_000;

/** Asks the daemon at local.listen, over loopback; null when its port is not known. */
export async function askDaemon(
  { host, port }: Config['local'],
  apiKey: string | undefined,
  signal: AbortSignal,
): Promise<DaemonAnswer | null> {
  if (port === 0) return null;
  const url = `http://${reachable(host)}:${port}`;
  const agent = new Agent();
  const ask = async (path: string) => {
    const { statusCode, body } = await request(url + path, {
      dispatcher: agent,
      headers: apiKey === undefined ? {} : { 'x-api-key': apiKey },
      signal: AbortSignal.any([signal, AbortSignal.timeout(TIMEOUT_MS)]),
    });
    const text = await body.text();
    return { statusCode, document: parsed(text) };
  };
  try {
    const health = await ask('/healthz');
    const { statusCode, document } = await ask('/v1/status');
    const versions = statusCode === 200 ? document.versions : undefined;
    return {
      url,
      health: health.statusCode === 200 ? 'ok' : 'failing',
      stalled: Array.isArray(health.document.stalled) ? health.document.stalled.map(String) : [],
      version: isRecord(versions) && typeof versions.tillsync === 'string' ? versions.tillsync : null,
      fault: null,
    };
  } catch (error) {
    const fault = error instanceof Error && 'code' in error ? String(error.code) : 'no answer in time';
    return { url, health: 'down', stalled: [], version: null, fault };
  } finally {
    await agent.destroy();
  }
}

/** An address that stands for every address is reached by the one of this machine. */
function reachable(host: string): string {
  if (host === '0.0.0.0') return '127.0.0.1';
  const v6 = host === '::' ? '::1' : host;
  return v6.includes(':') ? `[${v6}]` : v6;
}

function parsed(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text);
    return isRecord(value) ? value : {};
  } catch {
    return {};
  }
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null;
}
