import { copyFileSync, existsSync, mkdirSync, rmSync } from 'node:fs';
import path from 'node:path';
import Database from 'better-sqlite3';
import { openServices, type Services } from '../../../../src/app/services.ts';
import { readConfig } from '../../../../src/config/config.ts';
import type { Config } from '../../../../src/config/config-type.ts';
import { configError } from '../../../../src/config/source.ts';
import { silentLog } from '../../../../src/core/log.ts';
import type { Transport } from '../../../../src/platform/transport.ts';
import { chanceFor } from '../profile.ts';
import type { ChainWorld } from './chain-world.ts';

function configOf(text: string): Config {
  const read = readConfig({ file: 'chain.toml', env: {}, text });
  if ('faults' in read) throw configError(read.faults);
  return read.config;
}

/**
 * A tillsync of the chain with real files in memory and without listeners; the simulation runs the steps of its
 * loops.
 */
export abstract class ChainStore {
  readonly world: ChainWorld;
  readonly directory: string;
  readonly config: Config;
  readonly #secrets: { refreshToken?: string };
  readonly #transport: Transport;
  #services: Services | undefined;

  constructor(
    world: ChainWorld,
    name: string,
    how: { config: string; transport: Transport; refreshToken?: string },
  ) {
    this.world = world;
    this.directory = path.join(world.directory, name);
    mkdirSync(this.directory);
    this.config = configOf(`${how.config}\n[storage]\ndirectory = ${JSON.stringify(this.directory)}`);
    this.#transport = how.transport;
    this.#secrets = how.refreshToken === undefined ? {} : { refreshToken: how.refreshToken };
  }

  get isOpen(): boolean {
    return this.#services !== undefined;
  }

  get services(): Services {
    if (!this.#services) throw new Error('not started');
    return this.#services;
  }

  async open(): Promise<void> {
    this.#services = await openServices({
      config: this.config,
      secrets: { webhookSecrets: [], ...this.#secrets },
      clock: this.world.clock,
      random: chanceFor(this.world.seed, 9),
      log: silentLog,
      transport: this.#transport,
    });
    await this.begin(this.#services);
  }

  protected abstract begin(services: Services): Promise<void>;

  async close(): Promise<void> {
    const services = this.#services;
    this.#services = undefined;
    await services?.close();
  }

  get mirrorFile(): string {
    return path.join(this.directory, 'mirror.db');
  }

  /** Copies the mirror as a backup would. */
  copyMirror(to: string): void {
    rmSync(to, { force: true });
    this.services.mirror.read((db) => db.prepare('VACUUM INTO ?').run(to));
  }

  /** Replaces the mirror of a closed store by the file `from`; without `from` the mirror is deleted. */
  replaceMirror(from?: string): void {
    for (const end of ['', '-wal', '-shm']) rmSync(`${this.mirrorFile}${end}`, { force: true });
    if (from !== undefined) copyFileSync(from, this.mirrorFile);
  }

  /** Copies all files while the store is closed, like a snapshot of the machine. */
  filesTo(directory: string): void {
    rmSync(directory, { recursive: true, force: true });
    mkdirSync(directory);
    for (const name of ['mirror.db', 'mirror.db-wal', 'state.db', 'state.db-wal']) {
      const from = path.join(this.directory, name);
      if (existsSync(from)) copyFileSync(from, path.join(directory, name));
    }
  }

  /** Replaces the files of a closed store by those in `directory`. */
  filesFrom(directory: string): void {
    for (const name of ['mirror.db', 'state.db']) {
      for (const end of ['', '-wal', '-shm']) {
        const to = path.join(this.directory, `${name}${end}`);
        rmSync(to, { force: true });
        const from = path.join(directory, `${name}${end}`);
        if (existsSync(from)) copyFileSync(from, to);
      }
    }
  }

  /** Reads as a POS or another program beside the daemon does. */
  rows<T>(sql: string, ...values: unknown[]): T[] {
    if (this.#services)
      return this.#services.mirror.read((db) => db.prepare<unknown[], T>(sql).all(...values));
    const db = new Database(this.mirrorFile, { readonly: true });
    try {
      return db.prepare<unknown[], T>(sql).all(...values);
    } finally {
      db.close();
    }
  }
}
