import type { Branch } from '../../catalog/product.ts';

/**
 * `stock.hold_back_unbooked`. `auto` holds back in each branch whose POS acknowledges orders and whose two ids are
 * known.
 */
export type HoldBackSetting = boolean | 'auto';

/** A condition that a branch lacks, so that `auto` does not hold back there. */
type HoldBackLack = 'acknowledgement' | 'subsidiary_id' | 'external_id';

/** Whether pieces of unbooked orders are subtracted from the counts of a branch. */
export interface BranchHoldBack {
  /** Name of the branch for people. */
  branch: string;
  isOn: boolean;
  /** Conditions that hold-back lacks; empty if it is on, or switched off by configuration. */
  missing: HoldBackLack[];
}

/** Key of a holding branch that stands for every branch, including unconfigured ones. */
export const EVERY_BRANCH = '';

/**
 * Decides for each branch whether hold-back is on. `acknowledging` are the stores, as orders name them, whose POS has
 * acknowledged orders; `''` stands for the only branch.
 */
export function holdBackOf(
  branches: readonly Branch[],
  setting: HoldBackSetting,
  acknowledging: ReadonlySet<string>,
): BranchHoldBack[] {
  return branches.map(({ subsidiaryId, externalId }) => {
    const branch = externalId ?? subsidiaryId ?? '';
    if (setting !== 'auto') return { branch, isOn: setting, missing: [] };
    const missing: HoldBackLack[] = [];
    const stores = storesOf({ subsidiaryId, externalId }, branches);
    if (!stores.some((store) => acknowledging.has(store))) missing.push('acknowledgement');
    if (subsidiaryId === null) missing.push('subsidiary_id');
    if (externalId === null) missing.push('external_id');
    return { branch, isOn: missing.length === 0, missing };
  });
}

const LACKS: Record<HoldBackLack, string> = {
  acknowledgement: 'its POS has acknowledged no order by itself yet',
  subsidiary_id: 'its subsidiary_id is missing in [[branches]]',
  external_id: 'its external_id is missing in [[branches]]',
};

/** Returns a sentence that says whether a branch holds back, and which conditions it lacks. */
export function heldBackWords({ branch, isOn, missing }: BranchHoldBack): string {
  if (isOn) return `Branch ${branch}: orders that are not booked are kept back of counts.`;
  if (missing.length === 0) return `Branch ${branch}: counts are sent as they are.`;
  return `Branch ${branch}: counts are sent as they are, since ${missing.map((each) => LACKS[each]).join(' and ')}.`;
}

/** Returns the names that orders may use for a branch's store. */
export function storesOf({ subsidiaryId, externalId }: Branch, branches: readonly Branch[]): string[] {
  return [subsidiaryId, externalId, branches.length === 1 ? '' : null].filter((store) => store !== null);
}

/** Returns the keys of the branches that must hold back, as stored. */
export function holdingKeys(
  branches: readonly Branch[],
  setting: HoldBackSetting,
  acknowledging: ReadonlySet<string>,
): Set<string> {
  if (setting !== 'auto') return new Set(setting ? [EVERY_BRANCH] : []);
  const states = holdBackOf(branches, setting, acknowledging);
  return new Set(
    branches.flatMap(({ subsidiaryId }, i) =>
      states[i]?.isOn === true && subsidiaryId !== null ? [subsidiaryId] : [],
    ),
  );
}
