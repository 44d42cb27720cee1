import { TillsyncError } from '../core/errors.ts';
import { QUESTION_BYTES_MAX } from './question-gate.ts';

/** The one stream, and its subjects: one for each branch, so that all that goes down to a branch has one order. */
export const STREAM = 'DOWN';
export const downSubject = (branch: string) => `d.${branch}`;
export const upSubject = (branch: string, question: string) => `up.${branch}.${question}`;
/** What the hub asks a branch. */
export const askSubject = (branch: string, question: string) => `ctl.${branch}.${question}`;
/**
 * Where a branch answers: within what it may publish anyway. With a right to answer wherever it is asked
 * (`allow_responses`) the server would keep the reply subject of every message of the feed.
 */
export const answerSubject = (branch: string, id: string) => `up.${branch}.answer.${id}`;
export const inboxOf = (user: string) => `_INBOX.${user}`;

export interface ServerConfig {
  listen: string;
  storeDirectory: string;
  /** Under which the server encrypts its files. */
  storageKey: string;
  tls: { certFile: string; keyFile: string } | null;
  /** Public keys. */
  hubKey: string;
  systemKey: string;
  branches: readonly ServerBranch[];
}

/** The keys by which the server knows a branch: its own, and that of an invitation. */
export interface ServerBranch {
  branch: string;
  publicKey: string | null;
  invitedKey: string | null;
}

/** Of the hub, with the stream. The server's files lie in a folder of this name, so it never changes. */
const HUB_ACCOUNT = 'TILLSYNC';
const branchAccount = (branch: string) => `branch-${branch}`;

/** The accounts that the server has to have. */
export function accountNames({ branches }: Pick<ServerConfig, 'branches'>): string[] {
  return [HUB_ACCOUNT, ...branches.map(({ branch }) => branchAccount(branch))];
}

/**
 * The configuration of nats-server: what is not allowed here is forbidden. It listens for clients alone, knows only
 * these keys, and has on the disk what it acknowledged.
 *
 * Each branch has an account of its own. The server writes its answers to the reply subject that a branch names; in one
 * account for all, that subject could be `$JS.API.STREAM.DELETE.DOWN`. Across accounts an answer goes back to the account
 * of the one who asked, and of the hub's subjects a branch's account has only those that it imports.
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

/** One is usual, and two for a moment: what one key may take from the server. */
const CONNECTIONS_MAX = 8;
const SUBSCRIPTIONS_MAX = 100;
/** Twice what the hub takes of a question, so that it can say who sends what is longer. */
const UP_BYTES_MAX = 2 * QUESTION_BYTES_MAX;

/** What a branch may ask of the stream: how its consumer stands, and its next messages. */
const consumerRequests = (branch: string) => [
  `CONSUMER.INFO.${STREAM}.${branch}`,
  `CONSUMER.MSG.NEXT.${STREAM}.${branch}`,
];
/** Acknowledgements, and what goes up. */
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
  // In an account without a stream of its own the server answers `$JS.API` itself, so requests have another name there.
  // The mapping gives it to them: a branch asks as it would within the hub's account, in every version of tillsync.
  const asked = consumerRequests(branch).map((request) => ({
    to: `hub.API.${request}`,
    api: `$JS.API.${request}`,
  }));
  const inbox = `${inboxOf(branch)}.>`;
  // Who has the key of the branch alone takes no invitation for it, and who has the invitation asks nothing else.
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

/** What a branch needs to join, in one line: `tillsync-` and base64url of JSON. */
export interface Invitation {
  hub: string;
  branch: string;
  /** Of a key that is good for joining and nothing else. */
  seed: string;
  /** PEM of the authority that signed the server's certificate; null: one that every machine knows. */
  ca: string | null;
  /** ISO 8601 UTC. */
  expiresAt: string;
}

const MARK = 'tillsync-';

export function invitationText(invitation: Invitation): string {
  return MARK + Buffer.from(JSON.stringify(invitation)).toString('base64url');
}

/** Throws `usage` for what is no invitation. Whether it is still good, the hub says, by its own clock. */
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
