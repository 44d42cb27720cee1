import { realpathSync } from 'node:fs';
import { Agent, request } from 'undici';
import type { Config } from '../../config/config-type.ts';

/** What a running daemon says of itself. */
export interface DaemonAnswer {
  url: string;
  /** `down`: nothing answers there; `other`: what answers is not the tillsync of this storage. */
  health: 'ok' | 'failing' | 'down' | 'other';
  /** Whose it is, where another answers: the storage directory of another tillsync; null: of no tillsync. */
  otherStorage: string | null;
  /** Loops that are silent for too long. */
  stalled: string[];
  /** Its version; null when it does not tell. */
  version: string | null;
  /** Where nothing answers: what the system said. */
  fault: string | null;
}

const TIMEOUT_MS = 5_000;

/** Asks the daemon by its Unix socket, else at local.listen; null when neither is known. */
export async function askDaemon(
  { local: { host, port, socket }, storage }: Pick<Config, 'local' | 'storage'>,
  apiKey: string | undefined,
  signal: AbortSignal,
): Promise<DaemonAnswer | null> {
  if (socket !== '') {
    const agent = new Agent({ connect: { socketPath: socket } });
    const answer = await askAt({ url: 'http://localhost', name: socket, storage, agent, apiKey, signal });
    if (answer.health !== 'down' || port === 0) return answer;
  }
  if (port === 0) return null;
  const url = `http://${reachable(host)}:${port}`;
  return askAt({ url, name: url, storage, agent: new Agent(), apiKey, signal });
}

interface Asked {
  url: string;
  /** For a person. */
  name: string;
  storage: Config['storage'];
  agent: Agent;
  apiKey: string | undefined;
  signal: AbortSignal;
}

async function askAt({ url, name, storage, agent, apiKey, signal }: Asked): Promise<DaemonAnswer> {
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
    const { status, storage: itsStorage = storage.directory } = health.document;
    const isTillsync = status === 'ok' || status === 'failing';
    if (!isTillsync || real(String(itsStorage)) !== real(storage.directory)) {
      const otherStorage = isTillsync ? String(itsStorage) : null;
      return { url: name, health: 'other', otherStorage, stalled: [], version: null, fault: null };
    }
    const { statusCode, document } = await ask('/v1/status');
    const versions = statusCode === 200 ? document.versions : undefined;
    return {
      url: name,
      health: health.statusCode === 200 ? 'ok' : 'failing',
      stalled: Array.isArray(health.document.stalled) ? health.document.stalled.map(String) : [],
      version: isRecord(versions) && typeof versions.tillsync === 'string' ? versions.tillsync : null,
      otherStorage: null,
      fault: null,
    };
  } catch (error) {
    const fault = error instanceof Error && 'code' in error ? String(error.code) : 'no answer in time';
    return { url: name, health: 'down', otherStorage: null, stalled: [], version: null, fault };
  } finally {
    await agent.destroy();
  }
}

function real(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    return path;
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
