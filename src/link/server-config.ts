import { TillsyncError } from '../core/errors.ts';

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
  branches: readonly { branch: string; publicKey: string }[];
}

/**
 * The configuration of nats-server: what is not allowed here is forbidden. It listens for clients alone, knows only
 * these keys, and has on the disk what it acknowledged.
 */
export function serverConfig(config: ServerConfig): string {
  const { listen, storeDirectory, storageKey, tls, hubKey, systemKey, branches } = config;
  const users = branches.map(({ branch, publicKey }) => `      ${branchUser(branch, publicKey)}`);
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
  TILLSYNC {
    jetstream: enabled
    users: [
      { nkey: ${hubKey} }
${users.join('\n')}
    ]
  }
}
system_account: SYS
`;
}

function branchUser(branch: string, publicKey: string): string {
  const publish = [
    `$JS.API.CONSUMER.INFO.${STREAM}.${branch}`,
    `$JS.API.CONSUMER.MSG.NEXT.${STREAM}.${branch}`,
    `$JS.ACK.${STREAM}.${branch}.>`,
    `up.${branch}.>`,
  ];
  const subscribe = [`${inboxOf(branch)}.>`, `ctl.${branch}.>`];
  return `{ nkey: ${publicKey}, permissions: { publish: { allow: ${JSON.stringify(publish)} }, subscribe: { allow: ${JSON.stringify(subscribe)} } } }`;
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
