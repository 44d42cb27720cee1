import { TillsyncError } from '../core/errors.ts';
import { QUESTION_BYTES_MAX } from './question-gate.ts';

/** Name of the stream. Each branch has one subject in it, so that all its entries have one order. */
export const STREAM = 'DOWN';
export const downSubject = (branch: string) => `d.${branch}`;
export const upSubject = (branch: string, question: string) => `up.${branch}.${question}`;
/** Returns the subject of the hub's questions to a branch. */
export const askSubject = (branch: string, question: string) => `ctl.${branch}.${question}`;
/**
 * Returns the subject of a branch's answers, which the branch may publish to. The permission `allow_responses` would
 * work too, but the server would then remember the reply subject of every feed message.
 */
export const answerSubject = (branch: string, id: string) => `up.${branch}.answer.${id}`;
/** Returns the name by which a client identifies itself to the server. */
export const clientName = (user: string) => `tillsync ${user}`;
export const inboxOf = (user: string) => `_INBOX.${user}`;

export interface ServerConfig {
  listen: string;
  storeDirectory: string;
  /** Key with which the server encrypts its files. */
  storageKey: string;
  tls: { certFile: string; keyFile: string } | null;
  /** Public keys of the hub's own users. */
  hubKey: string;
  systemKey: string;
  branches: readonly ServerBranch[];
}

/** Keys that the server accepts for a branch: the branch's own key and the key of an invitation. */
export interface ServerBranch {
  branch: string;
  publicKey: string | null;
  invitedKey: string | null;
}

/**
 * Name of the hub's account, which owns the stream. The server stores files under this name, so it must never
 * change.
 */
const HUB_ACCOUNT = 'TILLSYNC';
const branchAccount = (branch: string) => `branch-${branch}`;

/** Returns the names of all accounts that the server must have. */
export function accountNames({ branches }: Pick<ServerConfig, 'branches'>): string[] {
  return [HUB_ACCOUNT, ...branches.map(({ branch }) => branchAccount(branch))];
}

/**
 * Returns the configuration of nats-server. The server listens only for clients, knows only these keys, permits only
 * what is listed, and acknowledges only messages that are on its disk.
 *
 * Each branch has its own account, because the server answers to the reply subject that a branch names. In a shared
 * account, a branch could name `$JS.API.STREAM.DELETE.DOWN` as reply subject. Across accounts, an answer is sent to the
 * asker's account, and a branch's account has only the hub's subjects that it imports.
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

/** Maximum number of connections of one branch. A branch usually has one, and two while it reconnects. */
const CONNECTIONS_MAX = 8;
const SUBSCRIPTIONS_MAX = 100;
/**
 * Longest message that the server accepts from a branch, in bytes. It is twice the hub's maximum, so that a question
 * that is too long still reaches the hub, which reports it.
 */
const UP_BYTES_MAX = 2 * QUESTION_BYTES_MAX;

/** Returns the stream requests that a branch may make: its consumer's state and its next messages. */
const consumerRequests = (branch: string) => [
  `CONSUMER.INFO.${STREAM}.${branch}`,
  `CONSUMER.MSG.NEXT.${STREAM}.${branch}`,
];
/** Returns the subjects of a branch's acknowledgements and uploads. */
const ownServices = (branch: string) => [`$JS.ACK.${STREAM}.${branch}.>`, upSubject(branch, '>')];

function exportsTo(branch: string): string[] {
  const accounts = JSON.stringify([branchAccount(branch)]);
  const [info, next] = consumerRequests(branch);
  return [
    `      { service: "$JS.API.${info}", accounts: ${accounts} }`,
    // One request may get many messages as answers.
    `      { service: "$JS.API.${next}", response_type: stream, accounts: ${accounts} }`,
    ...ownServices(branch).map((subject) => `      { service: "${subject}", accounts: ${accounts} }`),
    `      { stream: "${askSubject(branch, '>')}", accounts: ${accounts} }`,
  ];
}

function accountOf({ branch, publicKey, invitedKey }: ServerBranch): string {
  // In an account without a stream, the server itself answers `$JS.API`. So the branch's requests are imported as
  // `hub.API`, and a mapping turns `$JS.API` into it, because every version of tillsync uses that name.
  const asked = consumerRequests(branch).map((request) => ({
    to: `hub.API.${request}`,
    api: `$JS.API.${request}`,
  }));
  const inbox = `${inboxOf(branch)}.>`;
  // A branch's own key cannot use an invitation, and an invitation's key can only join.
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

/** An invitation: `tillsync-` and base64url of JSON, in one line. A branch needs nothing else to join. */
export interface Invitation {
  hub: string;
  branch: string;
  /** Seed of a key that can only join. */
  seed: string;
  /** PEM of the authority of the server's certificate; null if every machine trusts that authority. */
  ca: string | null;
  /** When the invitation expires, ISO 8601 UTC. */
  expiresAt: string;
}

const MARK = 'tillsync-';

export function invitationText(invitation: Invitation): string {
  return MARK + Buffer.from(JSON.stringify(invitation)).toString('base64url');
}

/**
 * Parses an invitation. Throws `usage` for an invalid one. Does not check the expiry, which the hub does by
 * its own clock.
 */
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
