import type { Branch } from '../../catalog/product.ts';
import { SILENT_IN_A_ROW } from '../../core/alarm.ts';
import { asTillsyncError, hasCode } from '../../core/errors.ts';
import { type Clock, formatDuration, isoUtc } from '../../core/time.ts';
import { FINDINGS } from '../../health/findings.ts';
import type { Verdict } from '../../health/verdict.ts';
import type { Mirror } from '../../orders/reading/mirror.ts';
import type { PlatformClient } from '../../platform/client.ts';
import type { CallOptions, Wait } from '../../platform/platform.ts';
import type { WebhookState } from '../../platform/schemas.ts';
import { CALLBACKS_OFF, type WebhookMemory, WITHOUT_SECRET } from '../../platform/webhook-registration.ts';
import type { ProbeResult } from '../webhook-probe.ts';
import {
  type CheckOutcome,
  failed,
  outcomeOfError,
  outcomeOfFindings,
  since,
  skipped,
  warned,
  well,
} from './check.ts';

/**
 * Smallest clock error that is reported. Smaller ones are normal, because the Date header has whole seconds and an
 * answer takes time.
 */
const NOTICED_MS = 30_000;
const HARMFUL_MS = 3_600_000;
const REMEDY = 'Have this machine keep its clock right by itself: timedatectl set-ntp true';

interface ClockReading {
  /** The platform's wall clock minus ours. */
  skewMs: number;
  /** Source of the clock: an answer just now, or the last token refresh. */
  source: 'answer' | 'refresh';
}

export function clockOutcome(reading: ClockReading | null): CheckOutcome {
  if (!reading) return skipped('The platform told no time to compare with.');
  const { skewMs, source } = reading;
  const facts = { skewMs, source };
  const offMs = Math.abs(skewMs);
  const then = source === 'refresh' ? ', as of the last token refresh' : '';
  if (offMs < NOTICED_MS) return well(`This machine's clock agrees with the platform's${then}.`, facts);
  const message = `This machine's clock is ${formatDuration(offMs)} ${skewMs > 0 ? 'behind' : 'ahead of'} the platform's${then}`;
  return offMs < HARMFUL_MS
    ? warned(`${message}; the times in the mirror are off by that.`, REMEDY, facts)
    : failed(`${message}, so times are wrong and orders may be looked for on the wrong day.`, REMEDY, facts);
}

const DAY_MS = 86_400_000;

/** Numbers of new orders of the last day, by whether a callback or a poll brought them first. */
interface FirstSights {
  webhook: number;
  poll: number;
  /** Time of the last callback, ISO 8601 UTC; null if none ever came. */
  lastWebhookAt: string | null;
  /** Number of new orders of the last day that polls, and no callback, brought since the last callback. */
  unannounced: number;
}

/**
 * Counts order_events by their source. An order that was minutes old when a poll found it may be from a time when
 * tillsync was stopped, so only orders found soon after their creation count as unannounced.
 */
export function firstSights(mirror: Pick<Mirror, 'read' | 'health'>, nowMs: number): FirstSights {
  const from = isoUtc(nowMs - DAY_MS);
  const lastOkAt = mirror.health.freshness().find(({ subject }) => subject === 'orders.webhook')?.lastOkAt;
  return mirror.read((db) => {
    const counts = db
      .prepare<[string], { webhook: number; poll: number }>(
        `SELECT count(*) FILTER (WHERE source = 'webhook') AS webhook, count(*) FILTER (WHERE source = 'poll') AS poll
         FROM order_events WHERE observed_at >= ? AND previous_status IS NULL`,
      )
      .get(from) ?? { webhook: 0, poll: 0 };
    const lastEventAt = db
      .prepare<[], string>(
        `SELECT observed_at FROM order_events WHERE source = 'webhook' ORDER BY seq DESC LIMIT 1`,
      )
      .pluck()
      .get();
    // A callback for an order that a poll had already brought makes no event, so freshness is used too.
    const lastWebhookAt = [lastEventAt ?? '', lastOkAt ?? ''].sort().at(-1) || null;
    const unannounced = db
      .prepare<[string, string], number>(
        `SELECT count(*) FROM order_events AS e JOIN _orders AS o USING (order_id)
         WHERE e.source = 'poll' AND e.observed_at >= ? AND e.observed_at > ? AND e.previous_status IS NULL
           AND julianday(e.observed_at) - julianday(o.created_at) < 10.0 / 1440`,
      )
      .pluck()
      .get(from, lastWebhookAt ?? '');
    return { ...counts, lastWebhookAt, unannounced: unannounced ?? 0 };
  });
}

/** Checks that callbacks arrive, by comparison with polls. */
export function arrivingOutcome(verdict: Verdict, seen: FirstSights, clock: Clock): CheckOutcome {
  const { webhook, poll, lastWebhookAt, unannounced } = seen;
  const facts = { ...seen };
  const last = lastWebhookAt === null ? 'None ever came' : `The last came ${since(lastWebhookAt, clock)}`;
  const counted = `${last}; of the new orders of the last day callbacks announced ${webhook}, and polls found ${poll} first.`;
  const found = outcomeOfFindings(
    verdict,
    'webhook.arriving',
    facts,
    'webhook.silent',
    'webhook.external-pos',
  );
  if (found) return { ...found, message: `${found.message} ${counted}` };
  if (unannounced >= SILENT_IN_A_ROW) {
    const { message, remedy } = FINDINGS['webhook.silent'];
    return warned(`${message} ${counted}`, remedy, facts);
  }
  if (lastWebhookAt === null && poll === 0) {
    return skipped('No order has come yet that a callback could announce.', null, facts);
  }
  return well(counted, facts);
}

/** Longest wait for a call's turn. A call that would wait longer is skipped, because a person waits for the result. */
const PATIENCE_MS = 15_000;

/** Makes a reading call to the platform, within the common rate budget. */
type Attempt = (call: (how: CallOptions) => Promise<CheckOutcome>) => Promise<CheckOutcome>;

interface AttemptOptions {
  signal: AbortSignal;
  onWait: (wait: Wait) => void;
  /** Returns a sentence why no call is tried; undefined if calls are tried. */
  hopeless: () => string | undefined;
}

/** Returns a function that makes calls, which wait only a short time for their turn, and that explains their errors. */
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

/** Tries GET /product/list by asking for one product of the first branch. */
export function listOutcome(
  platform: Pick<PlatformClient, 'productList'>,
  branches: readonly Branch[],
  attempt: Attempt,
): Promise<CheckOutcome> | CheckOutcome {
  const { subsidiaryId = null, externalId = null } = branches[0] ?? {};
  const name = subsidiaryId ?? externalId;
  if (name === null) {
    return skipped('No branch is configured, so there is no list to ask for.', 'Add [[branches]].');
  }
  const branch = subsidiaryId === null ? { externalId: name } : { subsidiaryId: name };
  return attempt(async (how) => {
    const query = { ...branch, page: 1, limit: 1, order: 'asc', orderBy: 'CreatedDate' } as const;
    const { totalDocs } = await platform.productList(query, how);
    const facts = { totalDocs };
    if (totalDocs === 0) {
      return warned(`It answers, and knows no product of the branch ${name}.`, 'Check [[branches]].', facts);
    }
    const many = totalDocs === null ? '' : `, with ${totalDocs} products of the branch ${name}`;
    return well(`It answers${many}.`, facts);
  });
}

/** Tries GET /product. `known` is a sku of the mirror; undefined if the mirror has none. */
export function productOutcome(
  platform: Pick<PlatformClient, 'productGet'>,
  known: unknown,
  attempt: Attempt,
): Promise<CheckOutcome> | CheckOutcome {
  if (known === undefined) return skipped('Not tried: the mirror knows no product to ask for yet.');
  const sku = String(known);
  return attempt(async (how) => {
    const product = await platform.productGet({ sku }, how);
    return well(product ? 'It answers.' : `It answers; the SKU ${sku} of the mirror is gone there.`, { sku });
  });
}

/** Reports the pauses that the platform asked for. An endpoint that waits for its turn is normal and not reported. */
export function limitsOutcome(waits: readonly Wait[]): CheckOutcome {
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

const SWITCH_OFF = 'To switch them off, run: {tillsync} webhook set --off';
const USE_A_SECRET = 'To use a secret, run: {tillsync} webhook rotate-secret';
const PUT_IT_BACK = 'Put it back with: {tillsync} webhook set';

type ThereOrNot = WebhookState | null | 'unsupported';

/** Checks that the platform's webhook exists and is the wanted one. */
export function registeredOutcome(
  wantedUrl: string,
  there: ThereOrNot,
  { registered, isOff, isWithoutSecret }: Pick<WebhookMemory, 'registered' | 'isOff' | 'isWithoutSecret'>,
): CheckOutcome {
  const isReadable = there !== 'unsupported';
  const facts = { wantedUrl, readable: isReadable, webhook: isReadable ? there : null };
  if (wantedUrl === '') {
    const found = isReadable && there?.callbackUrl ? ` The platform has ${there.callbackUrl}.` : '';
    return skipped(`webhook.callback_url is empty, so tillsync registers nothing.${found}`, null, facts);
  }
  const isOn = isReadable && there !== null && there.active !== false;
  if (isOff && isOn) {
    return warned('Callbacks were switched off here, and the platform sends them.', SWITCH_OFF, facts);
  }
  if (isOff) return skipped(CALLBACKS_OFF, null, facts);
  if (!isReadable) {
    if (registered?.callbackUrl === wantedUrl) {
      return well(`This platform does not show its webhook; ${wantedUrl} was registered from here.`, facts);
    }
    const message = `This platform does not show its webhook, and ${wantedUrl} was never registered.`;
    return warned(message, 'Register it with: {tillsync} webhook set', facts);
  }
  const fault = faultOf(there, wantedUrl, isWithoutSecret);
  if (fault === undefined && isWithoutSecret) return warned(WITHOUT_SECRET, USE_A_SECRET, facts);
  if (fault === undefined) return well(`The platform sends callbacks to ${wantedUrl}.`, facts);
  return warned(`${FINDINGS['webhook.mismatch'].message} ${fault}`, PUT_IT_BACK, facts);
}

function faultOf(
  there: WebhookState | null,
  wantedUrl: string,
  isWithoutSecret: boolean,
): string | undefined {
  if (!there?.callbackUrl) return 'It has none, so no callback comes.';
  if (there.callbackUrl !== wantedUrl) return `It sends to ${there.callbackUrl}, not to ${wantedUrl}.`;
  if (there.active === false) return 'It is switched off there, so no callback comes.';
  if (isWithoutSecret) {
    return there.hasSecret ? 'It still has a secret, which is not known here.' : undefined;
  }
  return there.hasSecret === false ? 'It has no secret, so every callback is refused here.' : undefined;
}

/**
 * Reports the tries of the callback receiver, on this machine or at its public address, which `webhook test` makes too.
 */
export function addressOutcome(results: readonly ProbeResult[]): CheckOutcome {
  const [first] = results;
  if (!first) return skipped('Not tried.');
  const wrong = results.find(({ ok }) => !ok);
  const facts = { results };
  if (!wrong) return well(`${first.url}: ${results.map(({ message }) => message).join('; ')}.`, facts);
  const message = `${wrong.url}: ${wrong.message}${wrong.message.endsWith('?') ? '' : '.'}`;
  // A fault of the public address is only a warning, because orders still arrive by polling.
  return wrong.what === 'public'
    ? warned(
        message,
        'Have the public address lead to webhook.listen here; try it with: {tillsync} webhook test',
        facts,
      )
    : failed(message, 'Check webhook.listen and webhook.path, then restart the service.', facts);
}
