import { asTillsyncError, hasCode } from '../../domain/errors.ts';
import type { CallOptions, Wait } from '../../domain/platform/call.ts';
import type { Branch } from '../../domain/product/catalog-lookup.ts';
import { formatDuration } from '../../domain/time/duration.ts';
import type { PlatformClient } from '../../platform/client.ts';
import { type Check, type Outcome, outcomeOfError, skipped, warned, well } from './check.ts';

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
