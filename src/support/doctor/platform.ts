import type Database from 'better-sqlite3';
import { openParts, type Parts } from '../../app/parts.ts';
import { configuredBranches } from '../../app/readers.ts';
import { type ProbeResult, probeWebhook } from '../../app/webhook-probe.ts';
import type { Branch } from '../../catalog/product.ts';
import type { Config } from '../../config/config-type.ts';
import type { Secrets } from '../../config/secrets.ts';
import { asTillsyncError, hasCode } from '../../core/errors.ts';
import { silentLog } from '../../core/log.ts';
import { type Clock, formatDuration, isoUtc, type Random } from '../../core/time.ts';
import { FINDING_SENTENCES } from '../../health/finding.ts';
import type { Verdict } from '../../health/verdict.ts';
import type { WebhookMemory } from '../../orders/webhook.ts';
import type { PlatformClient } from '../../platform/client.ts';
import type { CallOptions, Wait, WebhookState } from '../../platform/platform.ts';
import { createHttpTransport, serverDateMs, type Transport } from '../../platform/transport.ts';
import {
  type Check,
  type CheckId,
  failed,
  type Outcome,
  outcomeOfError,
  outcomeOfFindings,
  since,
  skipped,
  warned,
  well,
} from './check.ts';
import type { Stored } from './stored.ts';

/** The Date header has whole seconds, and an answer takes its time. */
const NOTICED_MS = 30_000;
const HARMFUL_MS = 3_600_000;
const REMEDY = 'Have this machine keep its clock right by itself: timedatectl set-ntp true';

export interface ClockReading {
  /** The platform's wall clock minus ours. */
  skewMs: number;
  /** From an answer just now, or from the last token refresh. */
  source: 'answer' | 'refresh';
}

export function clockCheck(read: () => ClockReading | null): Check {
  return { id: 'platform.clock', run: () => clockOutcome(read()) };
}

export function clockOutcome(reading: ClockReading | null): Outcome {
  if (!reading) return skipped('The platform told no time to compare with.');
  const { skewMs, source } = reading;
  const facts = { skewMs, source };
  const offMs = Math.abs(skewMs);
  const then = source === 'refresh' ? ', as of the last token refresh' : '';
  if (offMs < NOTICED_MS) return well(`This machine's clock agrees with the platform's${then}.`, facts);
  const message = `This machine's clock is ${formatDuration(offMs)} ${skewMs > 0 ? 'behind' : 'ahead of'} the platform's${then}`;
  if (offMs < HARMFUL_MS)
    return warned(`${message}; the times in the mirror are off by that.`, REMEDY, facts);
  return failed(
    `${message}, so times are wrong and orders may be looked for on the wrong day.`,
    REMEDY,
    facts,
  );
}

const DAY_MS = 86_400_000;
/** The alarm of the daemon, too, waits for so many in a row. */
const SILENT_IN_A_ROW = 3;

/** How the orders of the last day were first heard of. */
export interface FirstSights {
  webhook: number;
  poll: number;
  /** ISO 8601 UTC; null: none ever. */
  lastWebhookAt: string | null;
  /** Fresh orders that polls brought and no callback announced, since the last callback. */
  unannounced: number;
}

/**
 * `lastOkAt`: of the freshness of callbacks. Counts order_events by what brought them. An order that was minutes old when a poll found it may be one of a time
 * when nothing ran, so only fresh ones count as not announced.
 */
export function readFirstSights(db: Database.Database, nowMs: number, lastOkAt: string | null): FirstSights {
  const from = isoUtc(nowMs - DAY_MS);
  const counts = db
    .prepare<[string], { webhook: number; poll: number }>(
      `SELECT count(*) FILTER (WHERE source = 'webhook') AS webhook, count(*) FILTER (WHERE source = 'poll') AS poll
       FROM order_events WHERE observed_at >= ? AND previous_status IS NULL`,
    )
    .get(from);
  const lastEventAt = db
    .prepare<[], string | null>(
      `SELECT observed_at FROM order_events WHERE source = 'webhook' ORDER BY seq DESC LIMIT 1`,
    )
    .pluck()
    .get();
  // A callback that says what a poll had found already makes no event.
  const lastWebhookAt = [lastEventAt ?? '', lastOkAt ?? ''].sort().at(-1) || null;
  const unannounced = db
    .prepare<[string, string], number>(
      `SELECT count(*) FROM order_events AS e JOIN orders AS o USING (order_id)
       WHERE e.source = 'poll' AND e.observed_at >= ? AND e.observed_at > ? AND e.previous_status IS NULL
         AND julianday(e.observed_at) - julianday(o.created_at) < 10.0 / 1440`,
    )
    .pluck()
    .get(from, lastWebhookAt ?? '');
  return {
    ...(counts ?? { webhook: 0, poll: 0 }),
    lastWebhookAt,
    unannounced: unannounced ?? 0,
  };
}

export interface ArrivingCheckOptions {
  verdict: Verdict;
  sights: () => FirstSights;
  clock: Clock;
}

/** Whether callbacks really come, against what polls saw. */
export function arrivingCheck({ verdict, sights, clock }: ArrivingCheckOptions): Check {
  return { id: 'webhook.arriving', run: () => arrivingOutcome(verdict, sights(), clock) };
}

function arrivingOutcome(verdict: Verdict, seen: FirstSights, clock: Clock): Outcome {
  const { webhook, poll, lastWebhookAt, unannounced } = seen;
  const facts = { ...seen };
  const codes = ['webhook.refused', 'webhook.silent', 'webhook.unreadable', 'orders.webhook'] as const;
  const last = lastWebhookAt === null ? 'None ever came' : `The last came ${since(lastWebhookAt, clock)}`;
  const counted = `${last}; of the new orders of the last day callbacks announced ${webhook}, and polls found ${poll} first.`;
  const found = outcomeOfFindings(verdict, codes, facts, ['webhook.silent']);
  if (found) return { ...found, message: `${found.message} ${counted}` };
  if (unannounced >= SILENT_IN_A_ROW) {
    const { message, remedy } = FINDING_SENTENCES['webhook.silent'];
    return warned(`${message} ${counted}`, remedy, facts);
  }
  if (lastWebhookAt === null && poll === 0)
    return skipped('No order has come yet that a callback could announce.', null, facts);
  return well(counted, facts);
}

export interface PlatformPartsOptions {
  config: Config;
  secrets: Secrets;
  clock: Clock;
  random: Random;
}

/** The daemon's own parts, so that the same budget and token pair hold, and the time that the platform told. */
export interface PlatformParts {
  parts: Parts;
  /** The platform's wall clock minus ours by its last answer; null: it has told none. */
  skewMs(): number | null;
}

export async function openPlatformParts(options: PlatformPartsOptions): Promise<PlatformParts> {
  const { config, clock } = options;
  let skewMs: number | null = null;
  const transport = overheard(
    createHttpTransport({ baseUrl: config.platform.baseUrl, clock }),
    (serverNowMs) => {
      skewMs = serverNowMs - clock.nowMs();
    },
  );
  return { parts: await openParts({ ...options, log: silentLog, transport }), skewMs: () => skewMs };
}

function overheard(transport: Transport, onDate: (serverNowMs: number) => void): Transport {
  return {
    async send(request) {
      const answer = await transport.send(request);
      const dateMs = serverDateMs(answer.headers);
      if (dateMs !== undefined) onDate(dateMs);
      return answer;
    },
    close: () => transport.close(),
  };
}

/** A call that would wait longer is not worth a person's while. */
const PATIENCE_MS = 15_000;

/** One reading call to the platform, within the same budget as everything else. */
export type Attempt = (call: (how: CallOptions) => Promise<Outcome>) => Promise<Outcome>;

export interface AttemptOptions {
  signal: AbortSignal;
  onWait: (wait: Wait) => void;
  /** Says why no call is tried; undefined: they are. */
  hopeless: () => string | undefined;
}

/** Makes calls that wait for their turn, but not for long, and tells of a fault what it means. */
export function attempts({ signal, onWait, hopeless }: AttemptOptions): Attempt {
  return async (call) => {
    const why = hopeless();
    if (why !== undefined) return skipped(why);
    const tooLong = new AbortController();
    let held: Wait | undefined;
    const how: CallOptions = {
      signal: AbortSignal.any([signal, tooLong.signal]),
      onWait(wait) {
        if (wait.waitMs <= PATIENCE_MS) return onWait(wait);
        held = wait;
        tooLong.abort();
      },
    };
    try {
      return await call(how);
    } catch (thrown) {
      if (held && hasCode(thrown, 'aborted')) {
        const { reason, waitMs } = held;
        const message = `Not tried: the limits give this call its turn in ${formatDuration(waitMs)}.`;
        return skipped(message, null, { reason, waitMs });
      }
      if (hasCode(thrown, 'auth-required')) return skipped('Not tried, since there are no tokens that work.');
      if (!hasCode(thrown, 'blocked', 'forbidden', 'rate-limited')) return outcomeOfError(thrown);
      const { message, hint = 'Ask the support of the platform.', code } = asTillsyncError(thrown);
      return warned(message, hint, { code });
    }
  };
}

export interface ProductChecksOptions {
  platform: Pick<PlatformClient, 'productList' | 'productGet'>;
  branches: readonly Branch[];
  /** One that the mirror knows; undefined while it knows none. */
  anySku: () => string | undefined;
  attempt: Attempt;
}

/** The endpoints that only read, tried for real: one product of the list, and one product. */
export function productChecks({ platform, branches, anySku, attempt }: ProductChecksOptions): Check[] {
  return [
    { id: 'platform.products', run: () => tryList(platform, branches, attempt) },
    { id: 'platform.product', run: () => tryProduct(platform, anySku(), attempt) },
  ];
}

function tryList(
  platform: Pick<PlatformClient, 'productList'>,
  branches: readonly Branch[],
  attempt: Attempt,
): Promise<Outcome> | Outcome {
  const branch = branches.map(({ subsidiaryId, externalId }) => {
    if (subsidiaryId !== null) return { subsidiaryId };
    return externalId === null ? undefined : { externalId };
  })[0];
  if (!branch)
    return skipped('No branch is configured, so there is no list to ask for.', 'Add [[branches]].');
  return attempt(async (how) => {
    const page = await platform.productList(
      { ...branch, page: 1, limit: 1, order: 'asc', orderBy: 'CreatedDate' },
      how,
    );
    const { totalDocs } = page;
    const name = Object.values(branch)[0];
    if (totalDocs === 0) {
      return warned(`It answers, and knows no product of the branch ${name}.`, 'Check [[branches]].', {
        totalDocs,
      });
    }
    const many = totalDocs === null ? '' : `, with ${totalDocs} products of the branch ${name}`;
    return well(`It answers${many}.`, { totalDocs });
  });
}

function tryProduct(
  platform: Pick<PlatformClient, 'productGet'>,
  sku: string | undefined,
  attempt: Attempt,
): Promise<Outcome> | Outcome {
  if (sku === undefined) return skipped('Not tried: the mirror knows no product to ask for yet.');
  return attempt(async (how) => {
    const product = await platform.productGet({ sku }, how);
    return well(product ? 'It answers.' : `It answers; the SKU ${sku} of the mirror is gone there.`, { sku });
  });
}

/** What is held back just now: a wait of an endpoint is usual, a block is not. */
export function limitsOutcome(waits: readonly Wait[]): Outcome {
  const blocked = waits.filter(({ reason }) => reason === 'blocked' || reason === 'retry-after');
  const facts = { waits };
  if (blocked.length === 0) return well('The platform blocks nothing; calls keep its limits.', facts);
  const longestMs = Math.max(...blocked.map(({ waitMs }) => waitMs));
  const what = blocked.length === 1 ? (blocked[0] as Wait).endpoint : `${blocked.length} endpoints`;
  return warned(
    `The platform asked for a pause of ${what}, for ${formatDuration(longestMs)} more.`,
    'Wait; it ends by itself. Make sure that no other program uses the same token.',
    facts,
  );
}

const PUT_IT_BACK = 'Put it back with: {tillsync} webhook set';

export interface RegisteredCheckOptions {
  wantedUrl: string;
  show: (call: CallOptions) => Promise<WebhookState | null | 'unsupported'>;
  memory: () => WebhookMemory;
  attempt: Attempt;
}

/** Whether the platform's webhook is there and is the one that is wanted. */
export function registeredCheck({ wantedUrl, show, memory, attempt }: RegisteredCheckOptions): Check {
  return {
    id: 'webhook.registered',
    run: () =>
      attempt(async (how) => {
        const { registered } = memory();
        return registeredOutcome(wantedUrl, await seen(show, how), registered);
      }),
  };
}

/** As the daemon takes it: whatever an unknown address answers is no read at all. */
async function seen(show: RegisteredCheckOptions['show'], how: CallOptions) {
  try {
    return await show(how);
  } catch (error) {
    if (hasCode(error, 'platform-refused', 'platform-garbled', 'forbidden')) return 'unsupported';
    throw error;
  }
}

export function registeredOutcome(
  wantedUrl: string,
  there: WebhookState | null | 'unsupported',
  registered: WebhookMemory['registered'],
): Outcome {
  const isReadable = there !== 'unsupported';
  const facts = { wantedUrl, readable: isReadable, webhook: isReadable ? there : null };
  if (wantedUrl === '') {
    const found = isReadable && there?.callbackUrl ? ` The platform has ${there.callbackUrl}.` : '';
    return skipped(`webhook.callback_url is empty, so tillsync registers nothing.${found}`, null, facts);
  }
  const { message } = FINDING_SENTENCES['webhook.mismatch'];
  if (!isReadable) {
    if (registered?.callbackUrl === wantedUrl) {
      return well(`This platform does not show its webhook; ${wantedUrl} was registered from here.`, facts);
    }
    const remedy = 'Register it with: {tillsync} webhook set';
    return warned(
      `This platform does not show its webhook, and ${wantedUrl} was never registered.`,
      remedy,
      facts,
    );
  }
  if (!there?.callbackUrl) {
    return warned(`${message} It has none, so no callback comes.`, PUT_IT_BACK, facts);
  }
  if (there.callbackUrl !== wantedUrl) {
    return warned(`${message} It sends to ${there.callbackUrl}, not to ${wantedUrl}.`, PUT_IT_BACK, facts);
  }
  if (there.active === false) {
    return warned(`${message} It is switched off there, so no callback comes.`, PUT_IT_BACK, facts);
  }
  if (there.hasSecret === false) {
    return warned(`${message} It has no secret, so every callback is refused here.`, PUT_IT_BACK, facts);
  }
  return well(`The platform sends callbacks to ${wantedUrl}.`, facts);
}

export interface AddressChecksOptions {
  config: Config;
  /** The secret that callbacks carry; undefined when this command does not know it. */
  secret: string | undefined;
  signal: AbortSignal;
  /** null when it is not known. */
  running: boolean | null;
  /** Says why the public address is not tried; undefined: it is. */
  whyNot: () => string | undefined;
}

/** The receiver here and at its public address, tried as `webhook test` tries them. */
export function addressChecks(options: AddressChecksOptions): Check[] {
  const { config, running, whyNot } = options;
  let probed: Promise<ProbeResult[]> | undefined;
  const of = async (what: ProbeResult['what']) => {
    if (running === false) return skipped('tillsync does not run, so nobody takes callbacks.');
    probed ??= probe(options);
    return addressOutcome((await probed).filter((result) => result.what === what));
  };
  return [
    {
      id: 'webhook.receiver',
      run: () =>
        config.webhook.port === 0
          ? skipped('webhook.listen picks a free port, so it cannot be found from outside.')
          : of('local'),
    },
    {
      id: 'webhook.public',
      run: () => {
        const why = config.webhook.callbackUrl === '' ? 'webhook.callback_url is empty.' : whyNot();
        return why === undefined ? of('public') : skipped(why);
      },
    },
  ];
}

function probe({ config, secret, signal, whyNot }: AddressChecksOptions): Promise<ProbeResult[]> {
  const { webhook } = config;
  const callbackUrl = whyNot() === undefined ? webhook.callbackUrl : '';
  return probeWebhook({ config: { ...config, webhook: { ...webhook, callbackUrl } }, secret, signal });
}

export function addressOutcome(results: readonly ProbeResult[]): Outcome {
  const [first] = results;
  if (!first) return skipped('Not tried.');
  const wrong = results.find(({ ok }) => !ok);
  const facts = { results };
  if (!wrong) return well(`${first.url}: ${results.map(({ message }) => message).join('; ')}.`, facts);
  const message = `${wrong.url}: ${wrong.message}${wrong.message.endsWith('?') ? '' : '.'}`;
  // Orders still come by polling.
  if (wrong.what === 'public') {
    return warned(
      message,
      'Have the public address lead to webhook.listen here; try it with: {tillsync} webhook test',
      facts,
    );
  }
  return failed(message, 'Check webhook.listen and webhook.path, then restart the service.', facts);
}

/** For all of the webhook when it is switched off. */
export function webhookOffChecks(): Check[] {
  const off = () => skipped('The webhook is switched off in the configuration; orders come by polling.');
  const ids = ['webhook.registered', 'webhook.receiver', 'webhook.public', 'webhook.arriving'] as const;
  return ids.map((id) => ({ id, run: off }));
}

export interface PlatformChecksOptions {
  config: Config;
  /** undefined when it cannot be opened; `closed` says why. */
  platform: PlatformParts | undefined;
  closed: string | undefined;
  /** Says why nothing beyond this machine is tried; undefined: it is. */
  whyNot: () => string | undefined;
  stored: Stored | undefined;
  running: boolean | null;
  clock: Clock;
  signal: AbortSignal;
  onWait: (wait: Wait) => void;
}

/** What is on the other side: the platform's endpoints, its clock, its webhook and the way of callbacks to here. */
export function platformChecks(options: PlatformChecksOptions): Check[] {
  const { config, platform, stored } = options;
  const { enabled } = config.webhook;
  const clockAtLast = clockCheck(() => clockReading(platform, stored));
  if (!platform) {
    const ids: CheckId[] = ['platform.limits', 'platform.products', 'platform.product'];
    return [...unopened(ids, options), clockAtLast, ...(enabled ? callbacks(options) : webhookOffChecks())];
  }
  const { parts } = platform;
  const attempt = attempts({ ...options, hopeless: options.whyNot });
  const anySku = () => parts.mirror.read((db) => db.prepare('SELECT sku FROM skus LIMIT 1').pluck().get());
  const registered = registeredCheck({
    wantedUrl: config.webhook.callbackUrl,
    show: (how) => parts.webhookRegistration.show(how),
    memory: () => parts.state.webhook.read(),
    attempt,
  });
  return [
    {
      id: 'platform.limits',
      run: () => {
        const waits = parts.state.ledger.waits(config.limits);
        const found =
          stored && outcomeOfFindings(stored.verdict, ['platform.blocked', 'platform.forbidden'], { waits });
        return found ?? limitsOutcome(waits);
      },
    },
    ...productChecks({
      platform: parts.platform,
      branches: configuredBranches(config),
      anySku: () => asSku(anySku()),
      attempt,
    }),
    ...(enabled ? [orAlarm(registered, stored)] : []),
    clockAtLast,
    ...(enabled ? callbacks(options, parts.webhookSecrets.current()) : webhookOffChecks()),
  ];
}

/** Where it cannot be looked at now, what the daemon saw of it last. */
function orAlarm({ id, run }: Check, stored: Stored | undefined): Check {
  return {
    id,
    async run() {
      const outcome = await run();
      if (outcome.level !== 'skipped' || !stored) return outcome;
      return outcomeOfFindings(stored.verdict, ['webhook.mismatch'], outcome.facts) ?? outcome;
    },
  };
}

/** The receiver here, its public address, and what really comes. */
function callbacks(options: PlatformChecksOptions, secret?: string): Check[] {
  const { config, signal, stored, running, clock, whyNot, platform } = options;
  const addresses = addressChecks({ config, secret, signal, running, whyNot });
  const arriving: Check = stored
    ? arrivingCheck({
        verdict: stored.verdict,
        sights: () => firstSights(stored, clock),
        clock,
      })
    : { id: 'webhook.arriving', run: () => skipped('The mirror cannot be looked into.') };
  const unread = platform ? [] : unopened(['webhook.registered'], options);
  return [...unread, ...addresses, arriving];
}

function firstSights({ readers: { mirror } }: Stored, clock: Clock): FirstSights {
  const callbacks = mirror.freshness().find(({ subject }) => subject === 'orders.webhook');
  return mirror.read((db) => readFirstSights(db, clock.nowMs(), callbacks?.lastOkAt ?? null));
}

function unopened(
  ids: readonly CheckId[],
  { closed = 'Not tried.', whyNot }: PlatformChecksOptions,
): Check[] {
  return ids.map((id) => ({ id, run: () => skipped(whyNot() ?? closed) }));
}

function clockReading(platform: PlatformParts | undefined, stored: Stored | undefined): ClockReading | null {
  const skewMs = platform?.skewMs() ?? null;
  if (skewMs !== null) return { skewMs, source: 'answer' };
  const tokens = stored?.tokens;
  // Tokens that were only handed in, and never refreshed, bring no time of the platform.
  if (!tokens || tokens.generation < 2) return null;
  return { skewMs: tokens.clockSkewMs, source: 'refresh' };
}

function asSku(value: unknown): string | undefined {
  return value === undefined || value === null ? undefined : String(value);
}
