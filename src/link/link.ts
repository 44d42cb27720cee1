import * as z from 'zod';
import { FRESHNESS_STATES } from '../core/alarm.ts';
import { TillsyncError } from '../core/errors.ts';

/** An entry of a branch's feed on its way from the hub. */
export interface DownMessage {
  branch: string;
  /** The epoch in which `n` counts. */
  epoch: string;
  /** Number in the branch's feed, without gaps. */
  n: number;
  kind: string;
  /** JSON text. */
  body: string;
}

/** Questions of a branch to its hub. */
export type Question = 'join' | 'hello' | 'changes';

/** Questions of a hub to one branch, for a person at the hub. */
export const SUPPORT_QUESTIONS = ['status', 'doctor', 'bundle'] as const;
export type SupportQuestion = (typeof SUPPORT_QUESTIONS)[number];

/** Returns the answer as JSON text, or undefined for none. Never throws. `body` is JSON text as received. */
export type QuestionHandler = (
  branch: string,
  question: Question,
  body: Uint8Array,
) => Promise<string> | undefined;

/** Carries messages between a hub and its branches, from the hub's side. It may lose messages. */
export interface HubLink {
  /**
   * Creates the stream and the consumers of these branches, and removes other consumers. Returns a name of the message
   * store; a new name means that earlier messages may be lost. Throws `link-down`.
   */
  prepare(branches: readonly string[]): Promise<string>;
  /** Publishes in order; resolves when all are on the server's disk. Throws `link-down`; some may have arrived then. */
  publish(messages: readonly DownMessage[]): Promise<void>;
  /** Sets the handler of questions. */
  answer(handler: QuestionHandler): Promise<void>;
  /** Asks one branch (JSON text); the answer may have any length. Throws `link-down` soon if nobody answers. */
  ask(branch: string, question: SupportQuestion, body: string): Promise<Uint8Array>;
  close(): Promise<void>;
}

/** Never throws. */
export type SupportHandler = (question: SupportQuestion, body: string) => Promise<Uint8Array>;

/** The hub's link, seen from one branch. */
export interface BranchLink {
  /**
   * Passes messages to `take` in the order of publishing, from the first that was not accepted. Messages for which
   * `take` returns false are passed again, after earlier ones; accepted messages are not, if the link can avoid it. An
   * empty list means that there are none for a while. Ends with the signal. Throws `link-down`, and what `take` throws.
   */
  follow(take: (messages: DownMessage[]) => Promise<boolean>, signal: AbortSignal): Promise<void>;
  /** Asks one question; both texts are JSON. Throws `link-down` when no answer came in time. */
  ask(question: Question, body: string): Promise<string>;
  /** Sets the handler of the hub's questions, from the next connection on. */
  answer(handler: SupportHandler): void;
  /** Functions for several addresses of the hub. */
  ways?: {
    /** Called with the announcement in the hub's answer. Returns a sentence if it is refused. */
    heard(announced: unknown): string | null;
    told(): Hello['ways'];
  };
  close(): Promise<void>;
}

const text = z.string().max(10_000);

/** Upper limit of every counting number: 35,000 a second for a year. A higher one is invented. */
export const NUMBER_MAX = 2 ** 40;
const number = z.number().int().min(0).max(NUMBER_MAX);

export const JOIN = z.strictObject({ publicKey: z.string().regex(/^U[A-Z2-7]{55}$/) });

export const FORGOTTEN_MAX = 100;

/** A branch's report, which is also its heartbeat. */
export const HELLO = z.object({
  /** Id of the process, new at each start. If two machines have one key, the hub answers only the newer process. */
  instance: text,
  isStart: z.boolean(),
  /** null for a mirror that never got an entry of the hub. */
  epoch: text.nullable(),
  mark: number,
  /** Earlier epochs of the feed, which the branch does not follow again. */
  left: z.array(text).max(100).default([]),
  /** Whether it found a gap in the feed. */
  wantsSnapshot: z.boolean(),
  /**
   * Id of the uplink, which numbers a branch's items. Messages and columns keep the names `line`, `u` and `upTo`, which
   * older versions speak; the code says `uplinkId`, `seqUp` and `ackedUpTo`.
   */
  line: text,
  /** Whether this process started the uplink; only then the hub accepts an unknown uplink. */
  isOwnLine: z.boolean().default(true),
  /** Number of the newest event that its POS can read. */
  seq: number.default(0),
  /** True on an orderly stop, after which the branch gives no number above `seq`. */
  isLast: z.boolean().default(false),
  waiting: z.number().int().min(0),
  oldestWaitingAt: text.nullable(),
  /** Number of refused changes that nobody has decided on yet. */
  rejected: z.number().int().min(0).default(0),
  /** Number of entries in the branch's quarantine. */
  quarantined: z.number().int().min(0).default(0),
  /** The branch's verdict, with the code of the first finding; null if it sent none. */
  verdict: z
    .object({ level: z.enum(['green', 'amber', 'red']), finding: z.string().max(100).nullable() })
    .nullable()
    .default(null),
  version: text,
  /** Orders received with customer data that was removed here, because the hub was restored from an older backup. */
  forgotten: z.array(text).max(FORGOTTEN_MAX).default([]),
  /** The branch's present announcement, and why it refuses the last one; null from an older branch. */
  ways: z
    .object({ stamp: z.string().max(100).nullable(), refused: z.string().max(1_000).nullable() })
    .nullable()
    .default(null),
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
  /** The hub has the branch's items up to this number of its uplink. */
  upTo: number,
  /** False if the hub has accepted a later uplink, so that this mirror is an older copy, or one of two copies. */
  isLineKnown: z.boolean().default(true),
  /** Highest `seq` that this branch ever reported, perhaps from a newer copy or another machine. */
  seq: number.default(0),
  /** The branch's next event gets a higher number than this. */
  seqAfter: number.default(0),
  /**
   * Highest number that the branch may give an event before it asks again; null from an older hub, which leases none.
   */
  leasedSeq: number.nullable().default(null),
  /** The branch's feed was published to the server up to this number. */
  published: number.default(0),
  /** A snapshot begins with this number, and nothing before it will close a gap; 0 if none. */
  snapshotN: number.default(0),
  /** Whether the branch that asked has the hub's whole catalogue, with every branch swept. */
  hasCatalog: z.boolean().default(false),
  /** Freshness of the hub's own orders, by its clock. */
  freshness: z.array(freshness),
  /** The hub's clock in milliseconds since 1970; null from an older hub. */
  nowMs: z.number().nullable().default(null),
  /** Time after the last good poll at which orders count as missing, by the hub's schedule. */
  ordersStaleAfterMs: z.number().min(0).nullable().default(null),
  /** Whether the hub has handled the question's orders with removed customers. */
  hasForgotten: z.boolean().default(false),
  /** The hub's `Announcement` of its addresses; an invalid one does not spoil the hello. null from an older hub. */
  ways: z.unknown().default(null),
});
export type HelloAnswer = z.infer<typeof HELLO_ANSWER>;

/**
 * Start of a snapshot. `line` is the uplink of the branch that asked; a branch that follows the hub again waits for its
 * own.
 */
export const SNAPSHOT = z.object({ line: text.optional() });

/** End of a snapshot. `underWay`: the branch's changes that the hub will send without a person. */
export const SNAPSHOT_END = z.object({ underWay: z.array(z.number().int()).default([]) });

const UP_ITEM = z.object({
  /** Number on the uplink, rising without gaps. */
  u: number.min(1),
  kind: z.enum(['stock', 'product', 'ack']),
  /** Id in the branch's outbox; null for an acknowledgement. */
  changeId: z.number().int().nullable(),
  /** Of the POS. */
  reference: text.nullable(),
  /** Value as the POS submitted it; for an acknowledgement the order's id. */
  value: z.unknown(),
  /** True if a person typed the acknowledgement, so that it does not prove that the branch's POS acknowledges. */
  isTyped: z.boolean().optional(),
  /** Observation time of the newest event that the acknowledgement includes; missing from an older branch. */
  asOf: z.string().optional(),
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
   * Set if the branch's queue at the hub is full. Items after `upTo` were not accepted and may be sent after
   * this time.
   */
  comeBackMs: z.number().int().min(0).optional(),
});

/**
 * Refusal in place of an answer. `code` is for the program, `message` and `hint` are for a person. An older hub sends
 * no hint.
 */
export const REFUSAL = z.object({
  refused: z.object({
    code: z.enum(['expired', 'replaced', 'busy', 'unreadable']),
    message: text,
    hint: text.optional(),
  }),
});
export type Refusal = z.infer<typeof REFUSAL>['refused'];

/** Outcome of a change that was sent up. `held`: a guard at the hub holds it for a person. */
export const RESULT = z.object({
  change: z.number().int(),
  state: z.enum(['done', 'rejected', 'superseded', 'held']),
  message: z.string().nullable(),
  /** The order whose acknowledgement was refused; `change` is then 0. */
  refusedAck: z.string().optional(),
});
export type Result = z.infer<typeof RESULT>;

/** Form in which the person at the hub wants the command's output. */
export const SUPPORT_REQUEST = z.object({ json: z.boolean() });

/** The command's exit code and output at the branch. */
const SUPPORT_HEAD = z.object({ exit: z.number().int(), stdout: z.string(), stderr: z.string() });
export type SupportHead = z.infer<typeof SUPPORT_HEAD>;

const LINE_END = 10;

/** The head is one line; the rest is the file that the command wrote. */
export function packSupport(head: SupportHead, file: Uint8Array = Buffer.alloc(0)): Uint8Array {
  return Buffer.concat([Buffer.from(`${JSON.stringify(head)}\n`), file]);
}

/** Throws `link-down` for an invalid answer. */
export function readSupport(answer: Uint8Array): SupportHead & { file: Uint8Array } {
  const end = answer.indexOf(LINE_END);
  try {
    const head = SUPPORT_HEAD.parse(JSON.parse(Buffer.from(answer.subarray(0, end)).toString('utf8')));
    return { ...head, file: answer.subarray(end + 1) };
  } catch (cause) {
    throw new TillsyncError('link-down', 'The answer of the branch cannot be read.', { cause });
  }
}
