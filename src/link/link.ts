import * as z from 'zod';
import { FRESHNESS_STATES } from '../core/alarm.ts';
import { TillsyncError } from '../core/errors.ts';

/** One entry of a branch's feed on its way from the hub. */
export interface DownMessage {
  branch: string;
  /** Of which life of the hub's database `n` is. */
  epoch: string;
  /** Of the branch, without a gap. */
  n: number;
  kind: string;
  /** JSON text. */
  body: string;
}

/** What a branch asks its hub. */
export type Question = 'join' | 'hello' | 'changes';

/** What a hub asks one branch for a person there. */
export const SUPPORT_QUESTIONS = ['status', 'doctor', 'bundle'] as const;
export type SupportQuestion = (typeof SUPPORT_QUESTIONS)[number];

/** The answer is JSON text; undefined: the question gets none. It never throws. `body`: JSON text as it came. */
export type QuestionHandler = (
  branch: string,
  question: Question,
  body: Uint8Array,
) => Promise<string> | undefined;

/** What carries messages between a hub and its branches, as the hub sees it. It may lose what it carries. */
export interface HubLink {
  /**
   * Makes what is needed for these branches, and undoes what others had. Gives a name for the place where messages are
   * kept: another name means that what was sent before may be lost. Throws `link-down`.
   */
  prepare(branches: readonly string[]): Promise<string>;
  /** In their order; resolves when all are on the server's disk. Throws `link-down`; some may have arrived then. */
  publish(messages: readonly DownMessage[]): Promise<void>;
  /** Has questions answered from now on. */
  answer(handler: QuestionHandler): Promise<void>;
  /** One question to one branch, JSON text, and its answer of any length. Throws `link-down` soon when nobody answers. */
  ask(branch: string, question: SupportQuestion, body: string): Promise<Uint8Array>;
  close(): Promise<void>;
}

/** Never throws. */
export type SupportHandler = (question: SupportQuestion, body: string) => Promise<Uint8Array>;

/** The same as one branch sees it. */
export interface BranchLink {
  /**
   * Gives messages to `take` in the order in which they were published, from the first that was not taken; those that
   * it took are not given again if the link can help it; those for which it says `false` are, behind what comes before them. None for a while: an empty list, as a sign of life. Ends with the signal. Throws `link-down`, and what `take` does.
   */
  follow(take: (messages: DownMessage[]) => Promise<boolean>, signal: AbortSignal): Promise<void>;
  /** One question and its answer, both JSON text. Throws `link-down` when none came in time. */
  ask(question: Question, body: string): Promise<string>;
  /** Has the hub's questions answered from the next connection on. */
  answer(handler: SupportHandler): void;
  /** Where there are several ways to the hub. */
  ways?: {
    /** The hub answered, and announced that. Gives a sentence where it is refused. */
    heard(announced: unknown): string | null;
    told(): Hello['ways'];
  };
  close(): Promise<void>;
}

const text = z.string().max(10_000);

/** No number that counts something is higher: 35,000 a second for a year. One that is was made up. */
export const NUMBER_MAX = 2 ** 40;
const number = z.number().int().min(0).max(NUMBER_MAX);

export const JOIN = z.strictObject({ publicKey: z.string().regex(/^U[A-Z2-7]{55}$/) });

export const FORGOTTEN_MAX = 100;

/** How a branch stands; also a sign of life. */
export const HELLO = z.object({
  /** Of the process, new with each start: of two machines with one branch's key the newer one is heard. */
  instance: text,
  isStart: z.boolean(),
  /** null: a mirror that never heard the hub. */
  epoch: text.nullable(),
  mark: number,
  /** Earlier lives of the feed that it has followed, and does not follow again. */
  left: z.array(text).max(100).default([]),
  /** Whether it met a gap in the feed. */
  wantsSnapshot: z.boolean(),
  line: text,
  /** Whether this process began it: only then the hub takes a line that it does not know. */
  isOwnLine: z.boolean().default(true),
  /** Of the newest event that its POS can read. */
  seq: number.default(0),
  /** It ends in an orderly way, and gives no number after `seq`. */
  isLast: z.boolean().default(false),
  waiting: z.number().int().min(0),
  oldestWaitingAt: text.nullable(),
  /** Changes that were refused and that nobody has looked after yet. */
  rejected: z.number().int().min(0).default(0),
  /** Entries in its quarantine. */
  quarantined: z.number().int().min(0).default(0),
  /** Its own verdict, with the code of the first finding; null: it did not say. */
  verdict: z
    .object({ level: z.enum(['green', 'amber', 'red']), finding: z.string().max(100).nullable() })
    .nullable()
    .default(null),
  version: text,
  /** Orders that came with a customer who is forgotten here: the hub was restored from a backup of before. */
  forgotten: z.array(text).max(FORGOTTEN_MAX).default([]),
  /** Which announcement of addresses the branch keeps, and why it refuses the last one; null: a branch of before. */
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
  /** Up to this number of its line the hub has what the branch handed up. */
  upTo: number,
  /** False: the hub has heard another line since, so this mirror is an older copy, or one of two. */
  isLineKnown: z.boolean().default(true),
  /** The highest `seq` that the hub ever heard from this branch: further on in an older copy, or on a new machine. */
  seq: number.default(0),
  /** The next event of the branch gets a higher number than this. */
  seqAfter: number.default(0),
  /** No event of the branch gets a higher number until it asked again; null: a hub of before leases none. */
  leasedSeq: number.nullable().default(null),
  /** Up to this number the branch's feed was given to the server. */
  published: number.default(0),
  /** A snapshot begins with this number, and nothing before it will close a gap; 0: none. */
  snapshotN: number.default(0),
  /** Whether all that the hub has read of the catalogue, of each branch whole, had come to the branch that asked. */
  hasCatalog: z.boolean().default(false),
  /** How the hub's own orders come in, by its clock. */
  freshness: z.array(freshness),
  /** The hub's clock now, in milliseconds since 1970; null: a hub of before does not say. */
  nowMs: z.number().nullable().default(null),
  /** How long after the last good poll the hub's schedule has its orders count as missing. */
  ordersStaleAfterMs: z.number().min(0).nullable().default(null),
  /** The hub has looked at the orders with forgotten customers of the question. */
  hasForgotten: z.boolean().default(false),
  /** `Announcement`, of where the hub is from now on; one that is absurd spoils no hello. null: a hub of before. */
  ways: z.unknown().default(null),
});
export type HelloAnswer = z.infer<typeof HELLO_ANSWER>;

/** A snapshot that begins. `line`: of the branch that asked for it; one that hears the hub anew waits for its own. */
export const SNAPSHOT = z.object({ line: text.optional() });

/** Its end. `underWay`: changes of the branch that the hub has and that wait for no person. */
export const SNAPSHOT_END = z.object({ underWay: z.array(z.number().int()).default([]) });

export const UP_ITEM = z.object({
  /** Number on the line, rising without a gap. */
  u: number.min(1),
  kind: z.enum(['stock', 'product', 'ack']),
  /** Of the branch's outbox; null for an acknowledgement. */
  changeId: z.number().int().nullable(),
  /** Of the POS. */
  reference: text.nullable(),
  /** As the POS handed it over; of an acknowledgement the id of the order. */
  value: z.unknown(),
  /** A person typed the acknowledgement: it says nothing of the branch's POS. */
  isTyped: z.boolean().optional(),
  /** When the newest event of the order was observed that the acknowledgement knows of; a branch of before does not say. */
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
  /** As many changes of the branch wait at the hub as may: what follows `upTo` was not taken, and may come then. */
  comeBackMs: z.number().int().min(0).optional(),
});

/** In place of an answer; `code` says what follows from it, `message` is for a person. */
export const REFUSAL = z.object({
  refused: z.object({ code: z.enum(['expired', 'replaced', 'busy', 'unreadable']), message: text }),
});

/** What became of a change that was handed up. `held`: a guard rail at the hub holds it for a person. */
export const RESULT = z.object({
  change: z.number().int(),
  state: z.enum(['done', 'rejected', 'superseded', 'held']),
  message: z.string().nullable(),
  /** The order whose acknowledgement was refused; `change` is 0 then. */
  refusedAck: z.string().optional(),
});
export type Result = z.infer<typeof RESULT>;

/** How the person at the hub wants what the command says at the branch. */
export const SUPPORT_REQUEST = z.object({ json: z.boolean() });

/** How the command ended at the branch, and what it wrote. */
const SUPPORT_HEAD = z.object({ exit: z.number().int(), stdout: z.string(), stderr: z.string() });
export type SupportHead = z.infer<typeof SUPPORT_HEAD>;

const LINE_END = 10;

/** The head is one line, what follows is the file that the command wrote. */
export function packSupport(head: SupportHead, file: Uint8Array = Buffer.alloc(0)): Uint8Array {
  return Buffer.concat([Buffer.from(`${JSON.stringify(head)}\n`), file]);
}

/** Throws `link-down` for what is no answer. */
export function readSupport(answer: Uint8Array): SupportHead & { file: Uint8Array } {
  const end = answer.indexOf(LINE_END);
  try {
    const head = SUPPORT_HEAD.parse(JSON.parse(Buffer.from(answer.subarray(0, end)).toString('utf8')));
    return { ...head, file: answer.subarray(end + 1) };
  } catch (cause) {
    throw new TillsyncError('link-down', 'The answer of the branch cannot be read.', { cause });
  }
}
