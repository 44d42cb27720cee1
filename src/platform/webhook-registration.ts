import { hash, randomBytes } from 'node:crypto';
import type Database from 'better-sqlite3';
import type { Alarms } from '../core/alarm.ts';
import { asTillsyncError, hasCode, TillsyncError } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import { LOCKED_OUT_LOOK_MS, rest, retryDelayMs, whenFree } from '../core/loop.ts';
import type { Clock, Random } from '../core/time.ts';
import { factOf, setFact } from '../db/facts.ts';
import { storing } from '../db/sqlite.ts';
import type { PlatformClient } from './client.ts';
import type { CallOptions, WebhookChange } from './platform.ts';
import type { WebhookState } from './schemas.ts';

/** The webhook's state in state.db: the rotated secrets and the last registration. */
export interface WebhookMemory {
  /** Secret of the last finished rotation; null if tillsync never rotated the secret. */
  current: string | null;
  /** The secret before `current`, accepted until `previousUntilMs` (wall clock). */
  previous: string | null;
  previousUntilMs: number | null;
  /**
   * New secrets, oldest first, that are accepted here although the platform has not confirmed them. The platform may
   * have stored any of them.
   */
  pending: readonly string[];
  /**
   * SHA-256 of the configured secret at the last rotation. If another secret is configured later, the configured one is
   * used.
   */
  handedInDigest: string | null;
  /** Last registration that PUT /webhook confirmed; null if there is none, or if a later rotation got no answer. */
  registered: { callbackUrl: string; secretDigest: string | null } | null;
  /** True while a person wants the platform to send no callbacks. */
  isOff: boolean;
  /** True while a person wants callbacks without a secret. The receiver then accepts them without the header. */
  isWithoutSecret: boolean;
}

export const NO_WEBHOOK_MEMORY: WebhookMemory = {
  current: null,
  previous: null,
  previousUntilMs: null,
  pending: [],
  handedInDigest: null,
  registered: null,
  isOff: false,
  isWithoutSecret: false,
};

type WebhookMemoryStore = Pick<WebhookRows, 'read' | 'update'>;

/** Time for which the receiver may use the secrets that it last read. */
const SECRETS_CACHE_MS = 250;
/** Time for which the previous secret is still accepted, because notifications with it may be on their way. */
const PREVIOUS_VALID_MS = 3_600_000;
/** Maximum number of unconfirmed secrets that are accepted at the same time. */
const PENDING_MAX = 8;

interface WebhookSecretsOptions {
  /** Secrets from credentials or environment: the present one, and the previous one during a manual rotation. */
  handedIn: readonly string[];
  store: WebhookMemoryStore;
  clock: Clock;
}

/**
 * Knows which secrets a callback may carry. A secret that tillsync rotated replaces the configured one until another
 * secret is configured. During a rotation the old and the new secret are accepted, whatever the platform answered.
 */
export class WebhookSecrets {
  readonly #options: WebhookSecretsOptions;
  #cached: readonly string[] = [];
  #cachedUntilMonoMs = Number.NEGATIVE_INFINITY;

  constructor(options: WebhookSecretsOptions) {
    this.#options = options;
  }

  /**
   * Returns every accepted secret; empty if none is configured. '' stands for a callback without the header, which is
   * accepted only while a person wants callbacks without a secret.
   */
  accepted(): readonly string[] {
    const { clock, store } = this.#options;
    if (clock.monotonicMs() < this.#cachedUntilMonoMs) return this.#cached;
    try {
      this.#cached = this.#acceptedOf(store.read());
    } catch (error) {
      // While state.db is unavailable, the secrets that were last read stay valid.
      if (this.#cached.length === 0) throw error;
    }
    this.#cachedUntilMonoMs = clock.monotonicMs() + SECRETS_CACHE_MS;
    return this.#cached;
  }

  /** Returns the secret to register with the platform: '' for none by choice, undefined if none was ever made. */
  current(): string | undefined {
    const memory = this.#options.store.read();
    if (memory.isWithoutSecret) return '';
    return this.#rotatedHere(memory) ? (memory.current ?? undefined) : this.#options.handedIn[0];
  }

  /**
   * Makes a new secret, which is accepted here before the platform gets it. The stored registration becomes uncertain:
   * unless this rotation succeeds, the next start registers again.
   */
  async begin(): Promise<string> {
    const secret = randomBytes(32).toString('base64url');
    const { store, clock } = this.#options;
    await whenFree(clock, () =>
      store.update((memory) => ({
        ...memory,
        pending: [...memory.pending, secret].slice(-PENDING_MAX),
        registered: null,
      })),
    );
    return secret;
  }

  /** Records that the platform confirmed the pending secret. The previous secret stays valid for an hour. */
  async commit(secret: string): Promise<void> {
    const { store, clock, handedIn } = this.#options;
    const before = this.current() || null;
    await whenFree(clock, () =>
      store.update((memory) => ({
        ...memory,
        current: secret,
        previous: before,
        previousUntilMs: clock.nowMs() + PREVIOUS_VALID_MS,
        // Secrets of later rotations are still unconfirmed.
        pending: memory.pending.slice(memory.pending.indexOf(secret) + 1),
        isWithoutSecret: false,
        handedInDigest: digestOf(handedIn[0]),
      })),
    );
    this.#cachedUntilMonoMs = Number.NEGATIVE_INFINITY;
  }

  #rotatedHere(memory: WebhookMemory): boolean {
    const handedIn = this.#options.handedIn[0];
    if (memory.current === null) return false;
    return handedIn === undefined || memory.handedInDigest === digestOf(handedIn);
  }

  #acceptedOf(memory: WebhookMemory): string[] {
    const { handedIn, clock } = this.#options;
    const previousValid = memory.previousUntilMs !== null && clock.nowMs() < memory.previousUntilMs;
    const settled = this.#rotatedHere(memory)
      ? [memory.current, previousValid ? memory.previous : null, ...handedIn.slice(1)]
      : handedIn;
    const secrets = [...settled, ...memory.pending].filter((secret) => secret !== null && secret !== '');
    return [...new Set([...secrets, ...(memory.isWithoutSecret ? [''] : [])])] as string[];
  }
}

/** Returns the SHA-256 in hex, to compare secrets without storing them; null if there is no secret. */
function digestOf(secret: string | undefined): string | null {
  return secret ? hash('sha256', secret, 'hex') : null;
}

/** Sentences for what a person chose, wherever it is shown. */
export const CALLBACKS_OFF =
  'Callbacks are off, as you chose; orders arrive by polling. To switch them on, run: {tillsync} webhook set --on';
export const WITHOUT_SECRET =
  'Callbacks need no secret, as you chose: anyone who finds the address can send orders. To use a secret again, run: {tillsync} webhook rotate-secret';

const NOT_IMPLEMENTED = 501;
/** Number of failures in a row after which the read, whose path is a guess, counts as not offered. */
const READ_FAILURES_MAX = 3;
/** Time for which the platform must fail to register the webhook before a person is told. */
const FAILS_FOR_MS = 600_000;

interface WebhookRegistrationOptions {
  platform: Pick<PlatformClient, 'webhookGet' | 'webhookPut'>;
  secrets: WebhookSecrets;
  store: WebhookMemoryStore;
  /** The public address to register. If empty, the daemon registers nothing. */
  callbackUrl: string;
  alarms: Alarms;
  clock: Clock;
  log: Log;
}

/** How a person wants the webhook. What is left out stays as it was chosen before. */
export interface WebhookWish {
  callbackUrl: string;
  isOff?: boolean | undefined;
  /** True to clear the secret at the platform, and to accept callbacks without the header. */
  isWithoutSecret?: boolean | undefined;
  /** True to leave the secret that the platform has. */
  keepsSecret?: boolean | undefined;
}

/** Keeps the company's only webhook (document, "PUT /webhook") registered with this address and the agreed secret. */
export class WebhookRegistration {
  readonly #options: WebhookRegistrationOptions;
  /**
   * True after the platform answered a read with 401 or 403. Another read would only renew the token, or count as one
   * more call of a blocked token.
   */
  #isReadRefused = false;
  #readFailures = 0;
  #failsSinceMonoMs: number | undefined;
  #switchFault: TillsyncError | undefined;
  /** True once the platform took a change that clears the secret. */
  #isCleared = false;

  constructor(options: WebhookRegistrationOptions) {
    this.#options = options;
  }

  show(call?: CallOptions): Promise<WebhookState | null | 'unsupported'> {
    return this.#options.platform.webhookGet(call);
  }

  /**
   * Compares the platform's webhook with the wanted one, and registers the wanted one if they differ. If the platform
   * offers no read, the last registration by tillsync is compared instead. A failure that lasts raises an alarm.
   */
  async ensure(call?: CallOptions): Promise<'nothing-to-register' | 'off' | 'equal' | 'registered'> {
    try {
      const result = await this.#ensure(call);
      this.#failsSinceMonoMs = undefined;
      return result;
    } catch (error) {
      this.#noteFailure(error);
      throw error;
    }
  }

  async #ensure(call?: CallOptions): Promise<'nothing-to-register' | 'off' | 'equal' | 'registered'> {
    const { callbackUrl, secrets, store, log } = this.#options;
    if (callbackUrl === '') {
      this.#isRight();
      return 'nothing-to-register';
    }
    const secret = secrets.current();
    const { registered: last, isOff } = store.read();
    const seen = await this.look(call);
    if (isOff) {
      const isSending = seen !== 'unsupported' && seen !== null && seen.active !== false;
      if (isSending)
        await this.set({ callbackUrl, active: false, ...(secret !== undefined && { secret }) }, call);
      this.#isRight();
      return 'off';
    }
    if (secret === undefined) {
      // Without a secret, each callback would be refused.
      await this.rotateSecret(call);
      log.info({ callbackUrl }, 'webhook registered with the platform, with a new secret');
      return 'registered';
    }
    const sameAsLast = last?.callbackUrl === callbackUrl && last.secretDigest === digestOf(secret);
    const sameThere =
      seen === 'unsupported' ||
      (seen?.callbackUrl === callbackUrl && seen.active !== false && seen.hasSecret === (secret !== ''));
    if (sameAsLast && sameThere) {
      this.#isRight();
      return 'equal';
    }
    await this.set({ callbackUrl, active: true, secret }, call);
    log.info({ callbackUrl, hasSecret: secret !== '' }, 'webhook registered with the platform');
    return 'registered';
  }

  /** Checks whether the platform still sends callbacks to this address. Reports a difference but changes nothing. */
  async compare(call?: CallOptions): Promise<void> {
    const { callbackUrl, alarms, store } = this.#options;
    if (callbackUrl === '') return;
    const seen = await this.look(call);
    if (seen === 'unsupported') return;
    const { isOff } = store.read();
    const isAsWanted = isOff
      ? seen === null || seen.active === false
      : seen?.callbackUrl === callbackUrl && seen.active !== false;
    if (isAsWanted) {
      this.#isRight();
      return;
    }
    const found = seen ? `${seen.callbackUrl} (active: ${seen.active})` : 'no webhook at all';
    alarms.note(
      'webhook.mismatch',
      isOff
        ? 'The platform sends callbacks again, although they were switched off here. To switch them off again, run: {tillsync} webhook set --off'
        : `The platform sends callbacks to ${found}, not to ${callbackUrl}. Somebody changed it; \`{tillsync} webhook set\` puts it back.`,
    );
  }

  /** Registers the webhook as a person wants it, and remembers the choice, which holds for every later start. */
  async choose(wish: WebhookWish, call?: CallOptions): Promise<WebhookState> {
    const { secrets, store, clock } = this.#options;
    const before = store.read();
    const { callbackUrl, isOff = before.isOff, isWithoutSecret = before.isWithoutSecret } = wish;
    const active = !isOff;
    const keep = (chosen: Partial<WebhookMemory>) =>
      whenFree(clock, () => store.update((memory) => ({ ...memory, ...chosen })));
    if (wish.keepsSecret) {
      const state = await this.set({ callbackUrl, active }, call);
      await keep({ isOff });
      return state;
    }
    if (isWithoutSecret && !before.isWithoutSecret) {
      // Callbacks without the header are accepted before the platform sends the first one.
      await keep({ isWithoutSecret });
      await this.#untilSecretsAreRead(call);
    }
    const secret = isWithoutSecret ? '' : secrets.current();
    this.#isCleared = false;
    try {
      const state =
        secret === undefined
          ? await this.#withNewSecret({ callbackUrl, active }, call)
          : await this.set({ callbackUrl, active, secret }, call);
      await keep({ isOff });
      return state;
    } catch (error) {
      // After a lost answer, the platform may have cleared the secret, so the choice stays. It has cleared it where it
      // refuses only to switch the webhook on, and then sends callbacks without the header.
      if (hasCode(error, 'platform-refused', 'usage') && !this.#isCleared) {
        await keep({ isWithoutSecret: before.isWithoutSecret });
      }
      throw error;
    }
  }

  /**
   * Sends PUT /webhook and checks the answer. Throws `platform-refused` if the answer does not agree with the request.
   *
   * The name of the field that switches sending is a guess, and creation switches it on (document, "PUT /webhook"). So
   * true is sent only if the platform says that the webhook is off.
   */
  async set({ active, ...change }: WebhookChange, call?: CallOptions): Promise<WebhookState> {
    const { platform, store, clock } = this.#options;
    let state: WebhookState | undefined;
    const put = async (wanted: WebhookChange) => {
      const answer = await platform.webhookPut(wanted, call);
      if (change.secret === '' && answer.hasSecret !== true) this.#isCleared = true;
      return answer;
    };
    if (active !== false) state = await put(change);
    if (active === false || (active === true && state?.active === false)) {
      try {
        state = await put({ ...change, active });
      } catch (error) {
        if (!hasCode(error, 'platform-refused')) throw error;
        throw this.#notSwitched(active, `The platform refused it: ${error.message}`, error);
      }
    }
    if (state === undefined) throw new TillsyncError('internal', 'The platform was not asked.');
    this.#check(change, state, active);
    await whenFree(clock, () =>
      store.update((memory) => ({
        ...memory,
        registered: {
          callbackUrl: change.callbackUrl ?? state.callbackUrl ?? '',
          secretDigest:
            change.secret === undefined ? (memory.registered?.secretDigest ?? null) : digestOf(change.secret),
        },
      })),
    );
    return state;
  }

  /**
   * Registers a new secret with the platform. The old and the new secret are accepted before, during and after the
   * call, so that no callback is refused, even if the answer is lost.
   */
  rotateSecret(call?: CallOptions): Promise<WebhookState> {
    const { callbackUrl } = this.#options;
    return this.#withNewSecret(callbackUrl === '' ? {} : { callbackUrl }, call);
  }

  async #withNewSecret(change: WebhookChange, call?: CallOptions): Promise<WebhookState> {
    const { secrets } = this.#options;
    const secret = await secrets.begin();
    await this.#untilSecretsAreRead(call);
    const state = await this.set({ ...change, secret }, call);
    await secrets.commit(secret);
    return state;
  }

  /** Waits until every receiver has read the secrets that are stored now. */
  async #untilSecretsAreRead(call?: CallOptions): Promise<void> {
    await this.#options.clock.sleep(SECRETS_CACHE_MS * 2, call?.signal);
    if (call?.signal?.aborted) throw new TillsyncError('aborted', 'Stopped before the platform was told.');
  }

  /**
   * Reads the platform's webhook as `show` does. An unexpected answer, such as a web page or a refusal, counts as
   * `unsupported`, and so does a read that fails again and again, because its path is a guess.
   */
  async look(call?: CallOptions): Promise<WebhookState | null | 'unsupported'> {
    if (this.#isReadRefused) return 'unsupported';
    try {
      const seen = await this.show(call);
      this.#readFailures = 0;
      return seen;
    } catch (error) {
      this.#isReadRefused = hasCode(error, 'unauthorized', 'forbidden');
      if (hasCode(error, 'platform-failed', 'platform-unreachable', 'rate-limited')) this.#readFailures += 1;
      const isNoRead =
        hasCode(error, 'platform-refused', 'platform-garbled', 'forbidden', 'unauthorized') ||
        (hasCode(error, 'platform-failed') && error.httpStatus === NOT_IMPLEMENTED) ||
        (this.#readFailures >= READ_FAILURES_MAX && !hasCode(error, 'aborted', 'auth-required', 'blocked'));
      if (!isNoRead) throw error;
      const { code, message } = asTillsyncError(error);
      this.#options.log.info({ code }, `the webhook cannot be read at the platform: ${message}`);
      return 'unsupported';
    }
  }

  /** Tells of a registration that does not succeed while other calls do. Other failures are told elsewhere. */
  #noteFailure(error: unknown): void {
    const { alarms, clock } = this.#options;
    const isRefusal = hasCode(error, 'platform-refused', 'platform-garbled', 'forbidden', 'unauthorized');
    if (!isRefusal && !hasCode(error, 'platform-failed')) return;
    this.#failsSinceMonoMs ??= clock.monotonicMs();
    if (!isRefusal && clock.monotonicMs() - this.#failsSinceMonoMs < FAILS_FOR_MS) return;
    // This one has raised its own alarm.
    if (error === this.#switchFault) return;
    alarms.note('webhook.mismatch', `The webhook could not be registered: ${error.message}`);
  }

  #isRight(): void {
    this.#options.alarms.note('webhook.mismatch', null);
    this.#options.alarms.note('webhook.active-field', null);
  }

  #notSwitched(active: boolean, why: string, cause?: unknown): TillsyncError {
    const message = `The platform has the webhook, but does not switch it ${active ? 'on' : 'off'}. ${why}`;
    if (active) this.#options.alarms.note('webhook.active-field', why);
    this.#switchFault = new TillsyncError('platform-refused', message, {
      cause,
      hint: "Ask the platform's support for the name of the field that switches sending, and set platform.quirks.webhook_active_field to it.",
    });
    return this.#switchFault;
  }

  #check(change: Omit<WebhookChange, 'active'>, state: WebhookState, active: boolean | undefined): void {
    const { alarms } = this.#options;
    const hasSecret = change.secret === undefined ? undefined : change.secret !== '';
    const differs = <T>(wanted: T | undefined, found: T | null) =>
      wanted !== undefined && found !== null && wanted !== found;
    const faults = [
      differs(change.callbackUrl, state.callbackUrl) && `its address is ${state.callbackUrl}`,
      differs(hasSecret, state.hasSecret) && `hasSecret is ${state.hasSecret}`,
    ].filter(Boolean);
    if (faults.length > 0) {
      const message = `The platform took the webhook, but ${faults.join(' and ')}.`;
      alarms.note('webhook.mismatch', message);
      throw new TillsyncError('platform-refused', message, { hint: 'Compare with the company panel.' });
    }
    if (active !== undefined && differs(active, state.active)) {
      throw this.#notSwitched(active, `It answers that active is ${state.active}.`);
    }
    this.#isRight();
  }
}

const COMPARE_EVERY_MS = 3_600_000;

interface WebhookLoopOptions {
  registration: Pick<WebhookRegistration, 'ensure' | 'compare'>;
  /** Returns false while no call can succeed until a person brings new tokens. */
  mayCall: () => boolean;
  clock: Clock;
  random: Random;
  log: Log;
  beat: () => void;
}

/** Registers the webhook at start, with retries until it works, then compares it every hour. */
export async function webhookLoop(options: WebhookLoopOptions, signal: AbortSignal): Promise<void> {
  const { registration, mayCall, clock, random, log, beat } = options;
  let registered = false;
  let failures = 0;
  while (!signal.aborted) {
    beat();
    let restMs = COMPARE_EVERY_MS;
    if (failures > 0 && !mayCall()) restMs = LOCKED_OUT_LOOK_MS;
    else {
      try {
        if (registered) await registration.compare({ signal, onWait: beat });
        else await registration.ensure({ signal, onWait: beat });
        registered = true;
        failures = 0;
      } catch (error) {
        if (signal.aborted) return;
        failures += 1;
        restMs = retryDelayMs(failures, error, random);
        const { code, message, hint } = asTillsyncError(error);
        log.warn({ code, hint, failures }, `webhook not confirmed: ${message}`);
      }
    }
    await rest(clock, restMs, signal, beat);
  }
}

/** Stores the webhook's state as one row of state.db (mode 0600), so that a change is all or nothing. */
export class WebhookRows {
  readonly #db: Database.Database;
  readonly #onSecret: (value: string) => void;
  #toldText = '';

  constructor(db: Database.Database, onSecret: (value: string) => void) {
    this.#db = db;
    this.#onSecret = onSecret;
  }

  /** Returns the stored state. May throw `storage-busy`. */
  read(): WebhookMemory {
    const text = storing(() => factOf(this.#db, 'webhook'));
    if (text === undefined) return NO_WEBHOOK_MEMORY;
    const memory = JSON.parse(text) as WebhookMemory;
    if (text !== this.#toldText) this.#tell(memory);
    this.#toldText = text;
    return memory;
  }

  /** Reads, changes and writes the state in one durable transaction. May throw `storage-busy`. */
  update(change: (memory: WebhookMemory) => WebhookMemory): void {
    const updating = this.#db.transaction(() => {
      const memory = change(this.read());
      this.#tell(memory);
      setFact(this.#db, 'webhook', JSON.stringify(memory));
    });
    storing(() => updating.immediate());
  }

  #tell({ current, previous, pending }: WebhookMemory): void {
    for (const secret of [current, previous, ...pending]) if (secret !== null) this.#onSecret(secret);
  }
}
