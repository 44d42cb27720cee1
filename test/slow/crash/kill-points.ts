import { existsSync, type FSWatcher, mkdirSync, watch } from 'node:fs';
import path from 'node:path';
import { systemClock } from '../../../src/core/system-clock.ts';
import type { Random } from '../../../src/core/time.ts';
import type { Endpoint } from '../../../src/platform/platform.ts';
import type { DaemonLife } from './daemon-life.ts';
import type { CallPoint, PlatformGate } from './platform-gate.ts';
import type { StoreLoad } from './store-load.ts';

/** Parts of the test by which a kill is aimed; all of them are visible from outside the process. */
export interface Scene {
  storage: string;
  life: DaemonLife;
  gate: PlatformGate;
  load: StoreLoad;
  callbacks: CallbackWatch;
  random: Random;
}

/**
 * Called for each notification between a start of the daemon and its kill: `sent` when it is sent, `confirmed` when the
 * daemon has accepted it.
 */
export interface CallbackWatch {
  sent?: (() => void) | undefined;
  confirmed?: (() => void) | undefined;
}

export interface KillPoint {
  name: string;
  /** Arranges that the process is killed when it reaches the point; the returned function cancels what is left. */
  aim(scene: Scene): (() => void) | Promise<() => void>;
}

/** Approximate duration of a start of the daemon. */
const START_MS = 350;
const RUN_MS = 1_200;

const CALLS: Record<string, readonly Endpoint[]> = {
  refresh: ['token.refresh'],
  poll: ['order.all'],
  push: ['product.stock.batch', 'product.batch', 'product.stock.put', 'product.put'],
};
const CALL_POINTS: readonly CallPoint[] = ['arrived', 'done', 'half', 'answered'];

/** Kill points of any run of the daemon. */
export const KILL_POINTS: readonly KillPoint[] = [
  { name: 'any moment of the start', aim: (scene) => later(scene, START_MS) },
  { name: 'any moment of the run', aim: whileRunning },
  ...Object.entries(CALLS).flatMap(([what, endpoints]) =>
    CALL_POINTS.map((point) => ({
      name: `${what} ${point}`,
      aim: (scene: Scene) => atCall(scene, endpoints, point),
    })),
  ),
  { name: 'callback sent', aim: (scene) => atCallback(scene, 'sent', 3) },
  { name: 'callback confirmed', aim: (scene) => atCallback(scene, 'confirmed', 0) },
  { name: 'inbox copied, not emptied', aim: (scene) => atInbox(scene, 'journal', 0) },
  { name: 'inbox emptied, not forgotten', aim: (scene) => atInbox(scene, 'no journal', 0) },
  { name: 'inbox forgotten', aim: (scene) => atInbox(scene, 'no journal', 30) },
  { name: 'mirror written', aim: atMirrorWrite },
];

/** Kill points of a run of the daemon that starts with no files. */
export const FIRST_POINTS: readonly KillPoint[] = [
  { name: 'first: any moment of the start', aim: (scene) => later(scene, START_MS) },
  { name: 'first: sweep half', aim: (scene) => atCall(scene, ['product.list'], 'half') },
];

/** Kill points of a run of the daemon that upgrades the files. */
export const UPGRADE_POINTS: readonly KillPoint[] = [
  { name: 'upgrade: any moment', aim: (scene) => later(scene, START_MS) },
  { name: 'upgrade: copy of state.db kept', aim: (scene) => atFile(scene, 'state.db.before-upgrade', 1) },
  { name: 'upgrade: copy begun', aim: (scene) => atFile(scene, 'mirror.db.before-upgrade.part', 1) },
  { name: 'upgrade: copy kept', aim: (scene) => atFile(scene, 'mirror.db.before-upgrade', 1) },
  { name: 'upgrade: schema written', aim: atSchemaWrite },
];

function later({ life, random }: Scene, withinMs: number): () => void {
  const done = new AbortController();
  void systemClock.sleep(random.next() * withinMs, done.signal).then(() => life.kill());
  return () => done.abort();
}

async function whileRunning(scene: Scene): Promise<() => void> {
  await scene.life.running();
  return later(scene, RUN_MS);
}

/** Kills the daemon at a point of a call; after a complete answer up to 4 ms later, so that it may be stored. */
function atCall({ life, gate, random }: Scene, endpoints: readonly Endpoint[], point: CallPoint): () => void {
  const waitMs = point === 'answered' ? random.next() * 4 : 0;
  gate.ambush = { endpoints, point, act: () => killIn(life, waitMs) };
  return () => {
    gate.ambush = undefined;
  };
}

function atCallback({ life, callbacks, random }: Scene, event: keyof CallbackWatch, withinMs: number) {
  let left = Math.floor(random.next() * 20);
  callbacks[event] = () => {
    if (left-- === 0) killIn(life, random.next() * withinMs);
  };
  return () => {
    callbacks[event] = undefined;
  };
}

/**
 * Kills at a change of the rollback journal, which appears when the daemon begins to empty the inbox and is deleted at
 * the end.
 */
async function atInbox(
  { life, storage, load }: Scene,
  sign: 'journal' | 'no journal',
  waitMs: number,
): Promise<() => void> {
  await life.running();
  load.isInboxQuiet = true;
  await load.inboxAtRest();
  await load.insertSome();
  await load.insertSome();
  // Waits, so that the watcher does not see the file events of the POS's own inserts.
  await systemClock.sleep(5);
  const journal = path.join(storage, 'inbox', 'inbox.db-journal');
  const watcher = watching(path.dirname(journal), (name) => {
    if (name === path.basename(journal) && existsSync(journal) === (sign === 'journal')) killIn(life, waitMs);
  });
  return () => {
    load.isInboxQuiet = false;
    watcher.close();
  };
}

function atSchemaWrite({ life, storage, random }: Scene): () => void {
  return atChange(life, storage, 'mirror.db-wal', 1 + Math.floor(random.next() * 40));
}

async function atMirrorWrite({ life, storage, random }: Scene): Promise<() => void> {
  await life.running();
  return atChange(life, storage, 'mirror.db-wal', 1 + Math.floor(random.next() * 60));
}

function atFile({ life, storage }: Scene, name: string, times: number): () => void {
  return atChange(life, storage, name, times);
}

function atChange(life: DaemonLife, directory: string, name: string, times: number): () => void {
  let left = times;
  const watcher = watching(directory, (changed) => {
    if (changed !== name) return;
    left -= 1;
    if (left <= 0) life.kill();
  });
  return () => watcher.close();
}

function watching(directory: string, told: (name: string | null) => void): FSWatcher {
  mkdirSync(directory, { recursive: true });
  return watch(directory, (_event, name) => told(name));
}

function killIn(life: DaemonLife, ms: number): void {
  if (ms === 0) life.kill();
  else setTimeout(() => life.kill(), ms);
}
