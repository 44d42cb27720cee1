import { z } from 'zod';

export const MANIFEST = 'manifest.json';
export const CONFIG_FILE = 'config.toml';
export const MIRROR_FILE = 'mirror.db';
export const TOKENS_FILE = 'tokens.json';
export const STOCK_FILE = 'stock-changes.ndjson';
export const PRODUCT_FILE = 'product-changes.ndjson';
export const ACKS_FILE = 'order-acks.ndjson';

/** Rises when an older tillsync could no longer restore what is written. */
export const FORMAT_VERSION = 1;

const count = z.number().int().min(0);
const mark = z.object({ seq: count, orderId: z.string(), observedAt: z.string() });

/** First file of a backup: what it is, and what must be in it. */
export const manifestSchema = z.object({
  format: z.literal('tillsync-backup'),
  formatVersion: count,
  /** ISO 8601 in UTC: the moment the mirror is of. */
  createdAt: z.iso.datetime(),
  /** Version of the program that made it. */
  tillsync: z.string(),
  /** Host of the platform, so that one company's backup is not taken for another's. */
  platform: z.string(),
  files: z.array(
    z.object({
      name: z.string().regex(/^[a-z0-9][a-z0-9.-]{0,99}$/),
      bytes: count,
      sha256: z.string().regex(/^[0-9a-f]{64}$/),
    }),
  ),
  mirror: z.object({
    schema: z.array(z.string()),
    orders: count,
    events: count,
    products: count,
    unsentChanges: count,
    newestSeq: count,
    newestEvent: mark.nullable(),
  }),
  /** What a POS had handed over and tillsync had not taken yet; null: the inbox could not be read. */
  inbox: z.object({ stockChanges: count, productChanges: count, orderAcks: count }).nullable(),
  hasConfig: z.boolean(),
  hasTokens: z.boolean(),
});

export type Manifest = z.infer<typeof manifestSchema>;
export type ManifestFile = Manifest['files'][number];

/** Of a backup with `--with-tokens`. */
export const tokensSchema = z.object({
  tokens: z
    .object({
      refreshToken: z.string().min(1),
      accessToken: z.string().nullable(),
      accessExpiresAtMs: z.number().nullable(),
      accessIssuedAtMs: z.number().nullable(),
      refreshExpiresAtMs: z.number().nullable(),
      clockSkewMs: z.number(),
    })
    .nullable(),
  webhook: z.looseObject({
    current: z.string().nullable(),
    previous: z.string().nullable(),
    previousUntilMs: z.number().nullable(),
    pending: z.union([z.array(z.string()), z.string().nullable()]),
    handedInDigest: z.string().nullable(),
    registered: z.object({ callbackUrl: z.string(), secretDigest: z.string().nullable() }).nullable(),
  }),
});
