import { createHash } from 'node:crypto';
import type Database from 'better-sqlite3';
import type { Log } from '../core/log.ts';
import { sqlOf } from '../db/sqlite.ts';
import type { MirrorStores } from '../outbox/sending/repositories.ts';
import type { Config } from './config-type.ts';
import { type ConfigKey, KEYS } from './schema.ts';
import { type Secrets, secretsByName } from './secrets.ts';

/**
 * Digests of all configuration values and secrets, by name, as of the last start. Because of the secrets, they are
 * stored in state.db, which other users cannot read.
 */
export class ConfigSeenRows {
  readonly #db: Database.Database;

  constructor(db: Database.Database) {
    this.#db = db;
  }

  read(): Map<string, string> {
    const rows = sqlOf(this.#db).rows<{ key: string; digest: string }>('SELECT key, digest FROM config_seen');
    return new Map(rows.map(({ key, digest }) => [key, digest]));
  }

  write(digests: ReadonlyMap<string, string>): void {
    const sql = sqlOf(this.#db);
    sql.transaction(() => {
      sql.run('DELETE FROM config_seen');
      for (const [key, digest] of digests) {
        sql.run('INSERT INTO config_seen (key, digest) VALUES (?, ?)', key, digest);
      }
    });
  }
}

interface ConfigChangesOptions {
  state: { configSeen: ConfigSeenRows };
  stores: Pick<MirrorStores, 'write'>;
  config: Config;
}

/**
 * Records in the audit log which configuration keys and secrets changed since the last start, without their values. A
 * failure is logged, and the changes are recorded at the next start.
 */
export async function noteConfigChanges(
  options: ConfigChangesOptions,
  secrets: Secrets,
  log: Log,
): Promise<void> {
  try {
    await compare(options, secrets);
  } catch (error) {
    log.warn({ err: error }, 'what changed in the configuration could not be noted');
  }
}

async function compare(
  { state: { configSeen }, stores, config }: ConfigChangesOptions,
  secrets: Secrets,
): Promise<void> {
  const before = configSeen.read();
  const keys = KEYS.map((key): [string, string] => [key.path, digestOf(valueAt(config, key))]);
  const handedIn = [...secretsByName(secrets)].map(([name, secret]): [string, string] => [
    `the secret ${name}`,
    digestOf(secret),
  ]);
  const now = new Map([...keys, ...handedIn]);
  // A key without a digest was added by an upgrade, so its earlier value was the default.
  const usual = new Map(
    KEYS.map(({ path, schema }) => [path, digestOf(schema.safeParse(undefined).data ?? null)]),
  );
  const names = new Set([...now.keys(), ...before.keys()]);
  const changed = [...names].filter((name) => now.get(name) !== (before.get(name) ?? usual.get(name)));
  if (before.size > 0 && changed.length === 0) return;
  const detail = before.size === 0 ? 'first seen' : changed.join(', ');
  const subject = `configuration ${digestOf(keys)}`;
  await stores.write(({ audit }) =>
    audit.note({ who: 'tillsync', action: 'config.changed', subject, detail }),
  );
  // The digests are written last. After a crash, a change is recorded twice instead of never.
  configSeen.write(now);
}

function valueAt(config: Config, { part, property }: ConfigKey): unknown {
  const { webhook, local } = config;
  if (property === 'listen') {
    const at = (address: { host: string; port: number }) => ({ host: address.host, port: address.port });
    return part === 'webhook' ? at(webhook) : [at(local), ...local.others.map(at)];
  }
  const table = (part === '' ? config : config[part as keyof Config]) as Record<string, unknown>;
  return table[property];
}

/** Returns the digest of a value. Equal values have equal digests. */
function digestOf(value: unknown): string {
  return createHash('sha256')
    .update(JSON.stringify(value) ?? 'null')
    .digest('hex')
    .slice(0, 16);
}
