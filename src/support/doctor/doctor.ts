import { unitOf } from '../../app/installation.ts';
import { type StoragePaths, storagePaths } from '../../app/storage.ts';
import type { Config } from '../../config/config-type.ts';
import type { Secrets } from '../../config/secrets.ts';
import { type Environment, isSetUp } from '../../config/source.ts';
import { asTillsyncError } from '../../core/errors.ts';
import type { Clock, Random } from '../../core/time.ts';
import type { Wait } from '../../platform/platform.ts';
import { CHECK_IDS, type Check, type CheckId, type CheckResult, resultOf, skipped } from './check.ts';
import { databaseChecks, diskCheck, filesCheck, readersCheck } from './files.ts';
import {
  askDaemon,
  configCheck,
  type DaemonAnswer,
  type DoctorSetup,
  networkCheck,
  readUnit,
  serviceChecks,
  versionCheck,
} from './machine.ts';
import { openPlatformParts, type PlatformParts, platformChecks } from './platform.ts';
import { openStored, readRunningMark, STORED_CHECKS, type Stored, storedChecks } from './stored.ts';

export interface DoctorOptions {
  setup: DoctorSetup;
  env: Environment;
  clock: Clock;
  random: Random;
  signal: AbortSignal;
  /** Asks nothing of the platform and connects nowhere but to this machine. */
  offline: boolean;
  /** Ids or beginnings of ids such as `storage`; empty: everything. */
  only: readonly string[];
  /** Told before each check. */
  onCheck(id: CheckId): void;
  onWait(wait: Wait): void;
}

/** Ids that a word of `--only` stands for: the check itself, and those below it. */
export function checksNamed(word: string): CheckId[] {
  return CHECK_IDS.filter((id) => id === word || id.startsWith(`${word}.`));
}

/**
 * Makes every check that can be made, and gives each as it finishes. What is stored is only looked at, the platform
 * is only read, and all within the rate budget that every process here shares. Throws only what is a fault of its own.
 */
export async function* examine(options: DoctorOptions): AsyncGenerator<CheckResult> {
  const { setup } = options;
  const wanted = new Set(options.only.length === 0 ? CHECK_IDS : options.only.flatMap(checksNamed));
  const first = [configCheck(setup), versionCheck()];
  yield* made(first, wanted, options);
  const { config, secrets, file } = setup;
  if (config && isSetUp(config)) {
    yield* new Examination({ ...options, config, secrets, configFile: file }, wanted).results();
    return;
  }
  const rest = CHECK_IDS.filter((id) => !first.some((check) => check.id === id));
  const why = config ? 'Not checked before the set-up.' : 'Not checked: the configuration cannot be used.';
  yield* made(allSkipped(rest, why), wanted, options);
}

async function* made(
  checks: readonly Check[],
  wanted: ReadonlySet<CheckId>,
  { onCheck }: Pick<DoctorOptions, 'onCheck'>,
): AsyncGenerator<CheckResult> {
  for (const check of checks) {
    if (!wanted.has(check.id)) continue;
    onCheck(check.id);
    yield await resultOf(check);
  }
}

interface ExaminationOptions extends DoctorOptions {
  config: Config;
  secrets: Secrets;
  configFile: string;
}

/** The checks with a configuration, in an order in which no check disturbs a later one. */
class Examination {
  readonly #o: ExaminationOptions;
  readonly #wanted: ReadonlySet<CheckId>;
  readonly #paths: StoragePaths;
  /** Whether a connection to the platform came about; undefined while it was not tried. */
  #reached: boolean | undefined;

  constructor(options: ExaminationOptions, wanted: ReadonlySet<CheckId>) {
    this.#o = options;
    this.#wanted = wanted;
    this.#paths = storagePaths(options.config.storage.directory);
  }

  async *results(): AsyncGenerator<CheckResult> {
    const { config, secrets, clock, signal, configFile } = this.#o;
    const { directory } = config.storage;
    const mark = once(() => readRunningMark(directory, clock));
    const answer = once(() => askDaemon(config, secrets.localApiKey, signal));
    // Before anything opens the mirror, for that makes what is missing beside it.
    yield* this.#make([
      diskCheck(directory),
      filesCheck({
        directory,
        group: config.storage.group,
        configFile,
        isRunning: async () => (await mark()).running,
      }),
    ]);
    const { running: marked, pid: daemonPid } = await mark();
    const running = marked ?? isAnswering(await answer());
    yield* this.#make([
      ...databaseChecks(this.#paths, clock, signal),
      readersCheck({ mirrorPath: this.#paths.mirror, clock, signal, daemonPid }),
      ...serviceChecks({
        running,
        unit: once(() => readUnit(unitOf(configFile))),
        answer,
      }),
    ]);
    const stored = await openStored(config, clock, running);
    if ('level' in stored) {
      yield* this.#make(STORED_CHECKS.map((id) => ({ id, run: () => stored })));
      yield* this.#platform(undefined, running);
      return;
    }
    try {
      yield* this.#make(storedChecks({ stored, config, running, clock }));
      yield* this.#platform(stored, running);
    } finally {
      await stored.readers.close();
    }
  }

  async *#platform(stored: Stored | undefined, running: boolean | null): AsyncGenerator<CheckResult> {
    const { config, signal, offline, clock, onWait } = this.#o;
    for await (const result of this.#make([this.#network()])) {
      this.#reached = result.level === 'ok';
      yield result;
    }
    const opened = await this.#open(stored);
    try {
      yield* this.#make(
        platformChecks({
          platform: typeof opened === 'string' ? undefined : opened,
          closed: typeof opened === 'string' ? opened : undefined,
          whyNot: () => {
            if (offline) return 'Not tried: --offline.';
            return this.#reached === false ? 'Not tried, since the platform is not reached.' : undefined;
          },
          ...{ stored, config, running, clock, signal, onWait },
        }),
      );
    } finally {
      if (typeof opened !== 'string') await opened.parts.close();
    }
  }

  #network(): Check {
    const { config, signal, offline } = this.#o;
    if (offline) return { id: 'platform.network', run: () => skipped('Not tried: --offline.') };
    return networkCheck(config.platform.baseUrl, signal);
  }

  /** The daemon's own parts, or why they cannot be had. */
  async #open(stored: Stored | undefined): Promise<PlatformParts | string> {
    if (!stored?.tokens) return 'Not tried, since what is stored cannot be looked into.';
    if (![...this.#wanted].some((id) => /^(platform|webhook)\./.test(id))) return 'Not tried.';
    try {
      return await openPlatformParts(this.#o);
    } catch (thrown) {
      return `Not tried, since what is stored cannot be opened: ${asTillsyncError(thrown).message}`;
    }
  }

  #make(checks: readonly Check[]): AsyncGenerator<CheckResult> {
    return made(checks, this.#wanted, this.#o);
  }
}

/** null where it is not known where to ask. */
function isAnswering(answer: DaemonAnswer | null): boolean | null {
  return answer === null ? null : answer.health === 'ok' || answer.health === 'failing';
}

function allSkipped(ids: readonly CheckId[], why: string): Check[] {
  return ids.map((id) => ({ id, run: () => skipped(why) }));
}

function once<T>(read: () => Promise<T>): () => Promise<T> {
  let kept: Promise<T> | undefined;
  return () => {
    kept ??= read();
    return kept;
  };
}
