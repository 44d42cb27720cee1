import * as z from 'zod';
import { FRESHNESS_STATES } from '../core/alarm.ts';
import { TillsyncError } from '../core/errors.ts';

/** An entry of a branch's feed, sent from the hub to the branch. */
export interface DownMessage {
  branch: string;
  /** Epoch of the branch's feed in which the hub gave the number `n`. */
  epoch: string;
  /** Number of the entry in the branch's feed, rising without gaps. */
  n: number;
  kind: string;
  /** JSON text. */
  body: string;
}

/**
 * Time for which the hub and the server keep the entries of a feed. The hub resends entries that the server loses. A
 * branch that was away longer gets a snapshot.
 */
export const ENTRIES_KEPT_MS = 7 * 86_400_000;

/** Questions that a branch asks its hub. */
export type Question = 'join' | 'hello' | 'changes';

/** Questions that a person at the hub asks one branch. */
export const SUPPORT_QUESTIONS = ['status', 'doctor', 'bundle'] as const;
export type SupportQuestion = (typeof SUPPORT_QUESTIONS)[number];

/**
 * Answers a question with JSON text, or with undefined for no answer. `body` is unchecked JSON text. Never
 * throws.
 */
export type QuestionHandler = (
  branch: string,
  question: Question,
  body: Uint8Array,
) => Promise<string> | undefined;

/** The hub's connection to its branches. Messages may be lost. */
export interface HubLink {
  /**
   * Creates the stream and the consumers of these branches, and deletes other consumers. Returns an id of the
   * stream; a new id means that earlier messages may be lost. Throws `link-down`.
   */
  prepare(branches: readonly string[]): Promise<string>;
  /**
   * Publishes messages in order, and resolves when all of them are on the server's disk. Throws `link-down`; some
   * messages may have arrived all the same.
   */
  publish(messages: readonly DownMessage[]): Promise<void>;
  /** Sets the handler of the branches' questions. */
  answer(handler: QuestionHandler): Promise<void>;
  /**
   * Asks one branch a question (JSON text). The answer may have any length. Throws `link-down` soon if nobody
   * answers.
   */
  ask(branch: string, question: SupportQuestion, body: string): Promise<Uint8Array>;
  close(): Promise<void>;
}

/** Answers the hub's questions to a branch. Never throws. */
export type SupportHandler = (question: SupportQuestion, body: string) => Promise<Uint8Array>;

/** A branch's connection to its hub. */
export interface BranchLink {
  /**
   * Passes messages to `take` in published order, or [] while none wait, until the signal aborts. If `take` returns
   * false or an acknowledgement is lost, they are passed again. Throws `link-down` and errors of `take`.
   */
  follow(take: (messages: DownMessage[]) => Promise<boolean>, signal: AbortSignal): Promise<void>;
  /**
   * Sends one question and returns the answer, both JSON texts. Throws `link-down` if no answer arrives in time.
   */
  ask(question: Question, body: string): Promise<string>;
  /** Sets the handler of the hub's questions. It takes effect with the next connection. */
  answer(handler: SupportHandler): void;
  close(): Promise<void>;
}

const text = z.string().max(10_000);

/** Highest accepted number. Counting up to it takes a year at 35,000 a second, so a higher number is forged. */
export const NUMBER_MAX = 2 ** 40;
const number = z.number().int().min(0).max(NUMBER_MAX);

export const JOIN = z.strictObject({ publicKey: z.string().regex(/^U[A-Z2-7]{55}$/) });

export const FORGOTTEN_MAX = 100;

/** A branch's hello: its regular report to the hub, which is also its heartbeat. */
export const HELLO = z.object({
  /** Id of the branch's process. If two machines use the same branch key, the hub accepts only the newer process. */
  instance: text,
  isStart: z.boolean(),
  /** Epoch that the mirror follows; null for a mirror that never received an entry. */
  epoch: text.nullable(),
  mark: number,
  /** Earlier epochs of the feed, which the branch will not follow again. */
  left: z.array(text).max(100),
  /** True if the branch found a gap in the feed. */
  wantsSnapshot: z.boolean(),
  /**
   * Id of the uplink, which numbers the items that a branch uploads. Messages and columns keep older names: `line` is
   * the code's `uplinkId`, `u` its `seqUp` and `upTo` its `ackedUpTo`.
   */
  line: text,
  /** True if this process started the uplink. The hub accepts a new uplink only from the process that started it. */
  isOwnLine: z.boolean(),
  /** Number of the newest event in the branch's mirror. */
  seq: number,
  /** True for the last hello of an orderly stop, after which the process uses no number above `seq`. */
  isLast: z.boolean(),
  waiting: z.number().int().min(0),
  oldestWaitingAt: text.nullable(),
  /** Number of rejected changes that no person has decided on yet. */
  rejected: z.number().int().min(0),
  /** Number of entries in the branch's quarantine. */
  quarantined: z.number().int().min(0),
  /** The branch's verdict, with the code of its first finding; null if there is none. */
  verdict: z.object({
    level: z.enum(['green', 'amber', 'red']),
    finding: z.string().max(100).nullable(),
  }),
  version: text,
  /**
   * Orders whose customer was removed at this branch, but whose customer data the hub sent again, because the hub was
   * restored from an older backup.
   */
  forgotten: z.array(text).max(FORGOTTEN_MAX),
});
export type Hello = z.infer<typeof HELLO>;

const freshness = z.object({
  subject: z.enum(['orders.poll', 'orders.webhook', 'catalog.sweep']),
  lastOkAt: text.nullable(),
  lastTryAt: text.nullable(),
  state: z.enum(FRESHNESS_STATES),
  message: text,
});

export const HELLO_ANSWER = z.object({
  /** Number up to which the hub has accepted the items of the uplink. */
  upTo: number,
  /**
   * False if the hub did not know this uplink before the hello. If another process started the uplink, the mirror of
   * the branch or of the hub is then an older copy.
   */
  isLineKnown: z.boolean(),
  /** The branch's next event must get a number above this one. */
  seqAfter: number,
  /** Highest number that the branch may give an event before it asks again. */
  leasedSeq: number,
  /** Number up to which the branch's feed was published to the server. */
  published: number,
  /** Feed number at which a coming snapshot begins, so that the branch does not wait for earlier entries; else 0. */
  snapshotN: number,
  /** True if the branch has its whole catalogue, and the hub has read the catalogues of all branches. */
  hasCatalog: z.boolean(),
  /** Freshness of the hub's orders and catalogue, with times of the hub's clock. */
  freshness: z.array(freshness),
  /** The hub's clock in milliseconds since 1970. */
  nowMs: z.number(),
  /** Time after the last good poll at which orders count as stale, by the hub's schedule. */
  ordersStaleAfterMs: z.number().min(0),
});
export type HelloAnswer = z.infer<typeof HELLO_ANSWER>;

/**
 * Start of a snapshot. `line` is the uplink of the mirror that asked. A mirror that follows another epoch ignores a
 * snapshot for another uplink.
 */
export const SNAPSHOT = z.object({ line: text });

/**
 * End of a snapshot. `underWay`: ids of the branch's changes that wait at the hub and will be sent to the platform
 * without a person's decision.
 */
export const SNAPSHOT_END = z.object({ underWay: z.array(z.number().int()) });

const UP_ITEM = z.object({
  /** Number of the item on the uplink, rising without gaps. */
  u: number.min(1),
  kind: z.enum(['stock', 'product', 'ack']),
  /** Id of the change in the branch's outbox; null for an acknowledgement. */
  changeId: z.number().int().nullable(),
  /** Reference that the POS gave the change. */
  reference: text.nullable(),
  /** The value as the POS submitted it, or the order's id for an acknowledgement. */
  value: z.unknown(),
  /** True if a person typed the acknowledgement; it then does not prove that the POS acknowledges. */
  isTyped: z.boolean().optional(),
  /** Time of the newest event that the acknowledgement or count covers; missing if the branch knows no order. */
  asOf: z.string().optional(),
  /** Numbers of the lines that an acknowledgement leaves out. */
  without: z.array(number.min(1)).optional(),
  /** When a count was made, if its POS said so; ISO 8601 UTC. */
  countedAt: z.string().optional(),
  /** When the branch was handed a count that does not say when it was made; ISO 8601 UTC by the branch's clock. */
  handedAt: z.string().optional(),
});
export type UpItem = z.infer<typeof UP_ITEM>;
export const UP_ITEMS_MAX = 500;

export const CHANGES = z.object({
  instance: text,
  line: text,
  items: z.array(UP_ITEM).max(UP_ITEMS_MAX),
});

export const CHANGES_ANSWER = z.object({
  upTo: number,
  /**
   * Set if the branch's queue at the hub is full. Items after `upTo` were not accepted; the branch may send
   * them again after this time.
   */
  comeBackMs: z.number().int().min(0).optional(),
});

/** Refusal instead of an answer. Programs read `code`, people read `message` and `hint`. */
export const REFUSAL = z.object({
  refused: z.object({
    code: z.enum(['expired', 'replaced', 'busy', 'unreadable']),
    message: text,
    hint: text.optional(),
  }),
});
export type Refusal = z.infer<typeof REFUSAL>['refused'];

/** Returns `link-refused` if the hub refuses the branch, or `link-down` if a retry may help. */
export function refusalOf({ code, message, hint }: Refusal): TillsyncError {
  // For `unreadable` a retry may help, because after the next hello the hub may be able to read messages.
  if (code === 'busy' || code === 'unreadable') return new TillsyncError('link-down', message);
  const usual =
    code === 'replaced'
      ? 'End the tillsync that is too many, then restart the other: {restart}'
      : 'At the hub, invite the branch again: sudo tillsync branch invite NAME';
  return new TillsyncError('link-refused', message, { hint: hint ?? usual });
}

/** Outcome of an uploaded change. `held`: a guard at the hub holds the change until a person decides. */
export const RESULT = z.object({
  change: z.number().int(),
  state: z.enum(['done', 'rejected', 'superseded', 'held']),
  message: z.string().nullable(),
  /** Order whose acknowledgement was refused; `change` is then 0. */
  refusedAck: z.string().optional(),
});
export type Result = z.infer<typeof RESULT>;

/** Request for the output of a command at the branch, as JSON or as text. */
export const SUPPORT_REQUEST = z.object({ json: z.boolean() });

/** Exit code and output of the command at the branch. */
const SUPPORT_HEAD = z.object({ exit: z.number().int(), stdout: z.string(), stderr: z.string() });
export type SupportHead = z.infer<typeof SUPPORT_HEAD>;

const LINE_END = 10;

/** Packs an answer: the head as one line of JSON, then the file that the command wrote. */
export function packSupport(head: SupportHead, file: Uint8Array = Buffer.alloc(0)): Uint8Array {
  return Buffer.concat([Buffer.from(`${JSON.stringify(head)}\n`), file]);
}

/** Unpacks an answer of `packSupport`. Throws `link-down` for an invalid answer. */
export function readSupport(answer: Uint8Array): SupportHead & { file: Uint8Array } {
  const end = answer.indexOf(LINE_END);
  try {
    const head = SUPPORT_HEAD.parse(JSON.parse(Buffer.from(answer.subarray(0, end)).toString('utf8')));
    return { ...head, file: answer.subarray(end + 1) };
  } catch (cause) {
    throw new TillsyncError('link-down', 'The answer of the branch cannot be read.', { cause });
  }
}
