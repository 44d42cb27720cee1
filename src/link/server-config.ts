import { TillsyncError } from '../core/errors.ts';
import { QUESTION_BYTES_MAX } from './question-gate.ts';

/** The stream and its subjects. Each branch has one subject, so that all its entries have one order. */
export const STREAM = 'DOWN';
export const downSubject = (branch: string) => `d.${branch}`;
export const upSubject = (branch: string, question: string) => `up.${branch}.${question}`;
/** Subject for the hub's questions to a branch. */
export const askSubject = (branch: string, question: string) => `ctl.${branch}.${question}`;
/**
 * Subject for a branch's answers, inside its publish rights. With `allow_responses` the server would keep the reply
 * subject of every message of the feed.
 */
export const answerSubject = (branch: string, id: string) => `up.${branch}.answer.${id}`;
/** Name under which a client connects to the server. */
export const clientName = (user: string) => `tillsync ${user}`;
export const inboxOf = (user: string) => `_INBOX.${user}`;

export interface ServerConfig {
  listen: string;
  storeDirectory: string;
  /** Key with which the server encrypts its files. */
  storageKey: string;
  tls: { certFile: string; keyFile: string } | null;
  /** Public keys. */
  hubKey: string;
  systemKey: string;
  branches: readonly ServerBranch[];
}

/** Keys of a branch that the server accepts: the branch's own, and that of an invitation. */
export interface ServerBranch {
  branch: string;
  publicKey: string | null;
  invitedKey: string | null;
}

/** The hub's account, with the stream. The server's files are in a directory of this name, so it never changes. */
const HUB_ACCOUNT = 'TILLSYNC';
const branchAccount = (branch: string) => `branch-${branch}`;

/** Returns the accounts that the server must have. */
export function accountNames({ branches }: Pick<ServerConfig, 'branches'>): string[] {
  return [HUB_ACCOUNT, ...branches.map(({ branch }) => branchAccount(branch))];
}

/**
 * Makes the configuration of nats-server, which forbids everything that is not allowed. It listens only for clients,
 * knows only these keys, and acknowledges only what is on its disk.
 *
 * Each branch has its own account. The server answers to the reply subject that a branch names; with one account for
 * all, that could be `$JS.API.STREAM.DELETE.DOWN`. Across accounts, an answer goes to the asker's account, and a
 * branch's account has only the hub's subjects that it imports.
 */
export function serverConfig(config: ServerConfig): string {
  const { listen, storeDirectory, storageKey, tls, hubKey, systemKey, branches } = config;
  return `# Written by tillsync hub server-config, and anew when a branch comes or goes. Changes by hand are lost.
server_name: tillsync
listen: ${JSON.stringify(listen)}
max_payload: 8MB
${tls === null ? '' : `tls { cert_file: ${JSON.stringify(tls.certFile)}, key_file: ${JSON.stringify(tls.keyFile)}, timeout: 10 }\n`}authorization { timeout: 20 }
jetstream {
  store_dir: ${JSON.stringify(storeDirectory)}
  max_memory_store: 64MB
  max_file_store: 16GB
  sync_interval: always
  cipher: chachapoly
  key: ${JSON.stringify(storageKey)}
}
accounts {
  SYS { users: [ { nkey: ${systemKey} } ] }
  ${HUB_ACCOUNT} {
    jetstream: enabled
    users: [ { nkey: ${hubKey} } ]
    exports: [
${branches.flatMap(({ branch }) => exportsTo(branch)).join('\n')}
    ]
  }
${branches.map(accountOf).join('\n')}
}
system_account: SYS
`;
}

/** Most connections of one key. One is usual and two occur for a moment. */
const CONNECTIONS_MAX = 8;
const SUBSCRIPTIONS_MAX = 100;
/** Twice the hub's maximum, so that the hub can report who sends longer questions. */
const UP_BYTES_MAX = 2 * QUESTION_BYTES_MAX;

/** Requests that a branch may send to the stream: for its consumer's state, and for its next messages. */
const consumerRequests = (branch: string) => [
  `CONSUMER.INFO.${STREAM}.${branch}`,
  `CONSUMER.MSG.NEXT.${STREAM}.${branch}`,
];
/** Subjects of a branch's acknowledgements and of the items that it sends up. */
const ownServices = (branch: string) => [`$JS.ACK.${STREAM}.${branch}.>`, upSubject(branch, '>')];

function exportsTo(branch: string): string[] {
  const accounts = JSON.stringify([branchAccount(branch)]);
  const [info, next] = consumerRequests(branch);
  return [
    `      { service: "$JS.API.${info}", accounts: ${accounts} }`,
    // One request brings many messages.
    `      { service: "$JS.API.${next}", response_type: stream, accounts: ${accounts} }`,
    ...ownServices(branch).map((subject) => `      { service: "${subject}", accounts: ${accounts} }`),
    `      { stream: "${askSubject(branch, '>')}", accounts: ${accounts} }`,
  ];
}

function accountOf({ branch, publicKey, invitedKey }: ServerBranch): string {
  // In an account without a stream the server answers `$JS.API` itself, so requests get another name there. The
  // mapping lets a branch ask as inside the hub's account, with every version of tillsync.
  const asked = consumerRequests(branch).map((request) => ({
    to: `hub.API.${request}`,
    api: `$JS.API.${request}`,
  }));
  const inbox = `${inboxOf(branch)}.>`;
  // A branch's own key cannot use an invitation, and an invitation's key can do nothing else.
  const own = [
    `$JS.ACK.${STREAM}.${branch}.>`,
    ...['hello', 'changes', 'answer.*'].map((what) => upSubject(branch, what)),
  ];
  const users = [
    ...(publicKey === null
      ? []
      : [userOf(publicKey, [...asked.map(({ to }) => to), ...own], [inbox, askSubject(branch, '>')])]),
    ...(invitedKey === null ? [] : [userOf(invitedKey, [upSubject(branch, 'join')], [inbox])]),
  ];
  const from = (subject: string) => `{ account: ${HUB_ACCOUNT}, subject: "${subject}" }`;
  return `  "${branchAccount(branch)}" {
    users: [
${users.join('\n')}
    ]
    limits: { max_connections: ${CONNECTIONS_MAX}, max_subscriptions: ${SUBSCRIPTIONS_MAX}, max_payload: ${UP_BYTES_MAX} }
    mappings: { ${asked.map(({ api, to }) => `"${api}": "${to}"`).join(', ')} }
    imports: [
${asked.map(({ api, to }) => `      { service: ${from(api)}, to: "${to}" }`).join('\n')}
${ownServices(branch)
  .map((subject) => `      { service: ${from(subject)} }`)
  .join('\n')}
      { stream: ${from(askSubject(branch, '>'))} }
    ]
  }`;
}

function userOf(key: string, publish: readonly string[], subscribe: readonly string[]): string {
  const allow = (subjects: readonly string[]) => `{ allow: ${JSON.stringify(subjects)} }`;
  return `      { nkey: ${key}, permissions: { publish: ${allow(publish)}, subscribe: ${allow(subscribe)} } }`;
}

/** An invitation in one line, which is all that a branch needs to join: `tillsync-` and base64url of JSON. */
export interface Invitation {
  hub: string;
  branch: string;
  /** Seed of a key that can only join. */
  seed: string;
  /** PEM of the authority of the server's certificate; null if every machine trusts it. */
  ca: string | null;
  /** ISO 8601 UTC. */
  expiresAt: string;
}

const MARK = 'tillsync-';

export function invitationText(invitation: Invitation): string {
  return MARK + Buffer.from(JSON.stringify(invitation)).toString('base64url');
}

/** Throws `usage` for an invalid invitation. The hub decides by its own clock whether it has expired. */
export function readInvitation(text: string): Invitation {
  const found = parsed(text.trim());
  if (!found) {
    throw new TillsyncError('usage', 'That is no invitation: it is one line that begins with "tillsync-".', {
      hint: 'Copy the whole line that the hub printed for: {tillsync} branch invite NAME',
    });
  }
  return found;
}

function parsed(text: string): Invitation | undefined {
  if (!text.startsWith(MARK)) return undefined;
  try {
    const { hub, branch, seed, ca, expiresAt } = JSON.parse(
      Buffer.from(text.slice(MARK.length), 'base64url').toString('utf8'),
    ) as Partial<Invitation>;
    const isWhole = [hub, branch, seed, expiresAt].every((part) => typeof part === 'string' && part !== '');
    return isWhole ? ({ hub, branch, seed, ca: ca ?? null, expiresAt } as Invitation) : undefined;
  } catch {
    return undefined;
  }
}
