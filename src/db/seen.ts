/** Names that came up, in table `_seen`. */

type SeenKind =
  | 'polled-day'
  | 'unknown-status'
  | 'product-field'
  | 'acknowledging-store'
  | 'holding-branch'
  | 'inbox-row'
  | 'pos-hour'
  | 'hand-over';

/** SQL for the names of a kind, to which conditions may be added: `SELECT name FROM ${seen('polled-day')} AND …`. */
export const seen = (kind: SeenKind): string => `_seen WHERE kind = '${kind}'`;

/** SQL that notes a name of a kind that came up at a time: the parameters are @name and @at. */
export const noteSeen = (kind: SeenKind): string =>
  `INSERT INTO _seen (kind, name, first_at, last_at) VALUES ('${kind}', @name, @at, @at)
   ON CONFLICT (kind, name) DO UPDATE SET last_at = excluded.last_at`;

/** SQL for whether one of these names, each an SQL expression, is there. */
export const isSeen = (kind: SeenKind, ...names: readonly string[]): string =>
  `EXISTS (SELECT 1 FROM _seen WHERE _seen.kind = '${kind}' AND _seen.name IN (${names.join(', ')}))`;
