import { copyFileSync, mkdirSync } from 'node:fs';
import path from 'node:path';
import { openServices, type Services } from '../../src/app/services.ts';
import { readConfig } from '../../src/config/config.ts';
import { configError } from '../../src/config/source.ts';
import { silentLog } from '../../src/core/log.ts';
import { systemClock } from '../../src/core/system-clock.ts';
import { branchLoops } from '../../src/daemon/link-loops.ts';
import { linkCursor } from '../../src/link/branch-upload.ts';
import type { BranchLink } from '../../src/link/link.ts';
import { NatsBranchLink } from '../../src/link/nats.ts';
import { seededRandom } from '../support/fake-clock.ts';

/**
 * Runs many branches in one process. Each has its own files and the loops that follow the hub and hand changes up to
 * it, as in a branch's daemon. Inbox, API, page, hooks and alarms are left out, because the hub does not see them.
 */

export interface BenchBranch {
  name: string;
  seed: string;
}

type Place = { url: string; ca: string; directory: string };

/** Messages to this program. `begin` comes first; `stop` and `start` name branches that disconnect and return. */
export type BranchesOrder =
  | ({ kind: 'begin'; branches: BenchBranch[] } & Place)
  | { kind: 'stop' | 'start'; names: string[] };

/** A received event of an order; `atMs` is the wall clock when it was durable in the mirror. */
export type Committed = [branch: string, orderId: string, status: string, atMs: number];

export type BranchesReport = { kind: 'done' } | { kind: 'committed'; committed: Committed[] };

/**
 * Directory beside those of the branches, with the files of a branch that never connected to its hub. Each branch
 * starts with copies of these files.
 */
export const TEMPLATE = 'template';
const FILES = ['mirror.db', 'state.db'];
const TELL_EVERY_MS = 100;

export function openBranch(directory: string, name: string, url: string): Promise<Services> {
  const text = `[storage]
directory = ${JSON.stringify(directory)}
[link]
hub = ${JSON.stringify(url)}
branch = ${JSON.stringify(name)}`;
  const read = readConfig({ file: `${name}.toml`, env: {}, text });
  if ('faults' in read) throw configError(read.faults);
  return openServices({ ...OWN, config: read.config });
}

const OWN = { secrets: { webhookSecrets: [] }, clock: systemClock, random: seededRandom(1), log: silentLog };

/** One branch, which can disconnect and return. */
class RunningBranch {
  readonly #directory: string;
  readonly #url: string;
  /** PEM of the certificate authority that signed the certificate of nats-server. */
  readonly #ca: string;
  readonly #branch: BenchBranch;
  #stopping = new AbortController();
  #ended: Promise<unknown> = Promise.resolve();
  #services: Services | undefined;

  constructor({ directory, url, ca }: Place, branch: BenchBranch) {
    this.#ca = ca;
    this.#directory = path.join(directory, branch.name);
    this.#url = url;
    this.#branch = branch;
    mkdirSync(this.#directory);
    for (const file of FILES) {
      copyFileSync(path.join(directory, TEMPLATE, file), path.join(this.#directory, file));
    }
  }

  async start(): Promise<void> {
    const { name, seed } = this.#branch;
    const services = await openBranch(this.#directory, name, this.#url);
    this.#services = services;
    this.#stopping = new AbortController();
    const tls = { ca: this.#ca, serverName: null };
    const nats = new NatsBranchLink({ url: this.#url, branch: name, seed, tls });
    const link = noting(name, nats, () => services.mirror.read(linkCursor).mark);
    const options = { ...OWN, config: services.config, link: { branch: link } };
    const loops = branchLoops(options, services, () => {});
    this.#ended = Promise.all(loops.map(({ run }) => run(this.#stopping.signal, () => {})));
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#ended;
    await this.#services?.close();
  }
}

let committed: Committed[] = [];

/** Returns a link that records which orders the branch has received, once they are on the disk. */
function noting(branch: string, link: BranchLink, mark: () => number): BranchLink {
  return {
    ask: (question, body) => link.ask(question, body),
    answer: (handler) => link.answer(handler),
    close: () => link.close(),
    follow: (take, signal) =>
      link.follow(async (messages) => {
        const before = mark();
        const isTaken = await take(messages);
        const atMs = Date.now();
        const after = mark();
        for (const { kind, n, body } of messages) {
          if (kind !== 'order' || n <= before || n > after) continue;
          const { reading } = JSON.parse(body) as {
            reading: { orderId: string; fields: { status: string } };
          };
          committed.push([branch, reading.orderId, reading.fields.status, atMs]);
        }
        return isTaken;
      }, signal),
  };
}

function report(told: BranchesReport): void {
  process.send?.(told);
}

const running = new Map<string, RunningBranch>();

async function obey(order: BranchesOrder): Promise<void> {
  if (order.kind === 'begin') {
    for (const branch of order.branches) {
      const own = new RunningBranch(order, branch);
      running.set(branch.name, own);
      await own.start();
    }
    return;
  }
  for (const name of order.names) await running.get(name)?.[order.kind]();
}

if (process.send) {
  setInterval(() => {
    if (committed.length === 0) return;
    report({ kind: 'committed', committed });
    committed = [];
  }, TELL_EVERY_MS);
  process.on('message', (order: BranchesOrder) => {
    void obey(order).then(() => report({ kind: 'done' }));
  });
  process.on('disconnect', () => process.exit());
}
