import { existsSync } from 'node:fs';
import type { Config } from '../../config/config-type.ts';
import { isBranch } from '../../config/roles.ts';
import { asTillsyncError, counted } from '../../core/errors.ts';
import { isoUtc } from '../../core/time.ts';
import type { BranchStatus } from '../../link/branch-status.ts';
import type { ServerConfigPlace } from '../../link/hub-state.ts';
import { isOfUnit, RENEWED_BEFORE_MS, START_SERVER, UNIT_FILE } from '../../link/server-file.ts';
import { lookAtCertificate, lookAtServer, readPem, type ServerSeen } from '../../link/server-look.ts';
import { type CheckOutcome, failed, outcomeOfError, skipped, warned, well } from './check.ts';
import type { ServiceUnit } from './unit.ts';

const DAY_MS = 86_400_000;

const NOT_WRITTEN = 'Write it with: {tillsync} hub server-config';

/** Result of trying an address: a server, or an error. */
export type Seen = ServerSeen | { error: unknown };

/**
 * Tries the server at `url`. Its certificate authority is in the file `caFile` or is `ca` (PEM text); without both, the
 * machine's authorities are trusted. `calledAs` is the address that the certificate must name, if it is not `url`.
 */
export async function lookAt(
  url: string,
  { caFile, ca, calledAs }: { caFile?: string | null | undefined; ca?: string | null; calledAs?: string },
  signal: AbortSignal,
): Promise<Seen> {
  try {
    return await lookAtServer(
      url,
      { ca: caFile ? readPem(caFile) : (ca ?? null), calledAs: calledAs || url },
      signal,
    );
  } catch (error) {
    return { error };
  }
}

/** Checks the nats-server beside a hub: whether it runs with the configuration that the hub wrote. */
export function serverOutcome(
  nats: string,
  place: ServerConfigPlace | undefined,
  seen: Seen,
  unit: ServiceUnit | null,
): CheckOutcome {
  if (place === undefined) {
    return failed('The configuration of the nats-server was not written yet.', NOT_WRITTEN);
  }
  const { file } = place;
  const facts = { file, unit };
  const isForeign = !('error' in seen) && seen.name !== 'tillsync';
  if (!isForeign && !existsSync(file))
    return failed(`The configuration of the nats-server, ${file}, is gone.`, NOT_WRITTEN, facts);
  const start = startOf(file, unit);
  if ('error' in seen) {
    const { code, message } = asTillsyncError(seen.error);
    if (code === 'config-invalid') return outcomeOfError(seen.error);
    const stop =
      code === 'link-refused' ? 'End the other program, or give hub.nats another port, then: ' : '';
    return failed(`The nats-server does not run. ${message}`, `${stop}${start}`, facts);
  }
  const { version } = seen;
  if (isForeign) {
    const message = `Another nats-server (${version}) answers at ${nats}, not the one of ${file}.`;
    return failed(
      message,
      `End it and start the right one: sudo systemctl disable --now nats-server && ${START_SERVER}`,
      facts,
    );
  }
  if (isOfUnit(file) && unit?.unitFileState === 'disabled') {
    return warned(
      'nats-server runs, but does not start with the machine.',
      'Have it start with: sudo systemctl enable tillsync-nats',
      facts,
    );
  }
  return well(`nats-server ${version} answers at ${nats}.`, { ...facts, version });
}

function startOf(file: string, unit: ServiceUnit | null): string {
  if (isOfUnit(file)) {
    return `Start it with: ${START_SERVER}; if it ends again, see why with: sudo journalctl -u tillsync-nats -n 50`;
  }
  const start = `Start it with: nats-server -c ${file}`;
  if (unit === null) return `${start}; the package brings a service for it: sudo apt install tillsync-hub`;
  // The file that the service reads may be another hub's.
  if (existsSync(UNIT_FILE)) return start;
  return `Write the server's configuration where tillsync-nats reads it: {tillsync} hub server-config ${UNIT_FILE}; then start it with: ${START_SERVER}`;
}

/** Checks the certificate that the server shows to branches. */
export function certificateOutcome(
  publicUrl: string,
  { file, tls }: ServerConfigPlace,
  seen: Seen,
  nowMs: number,
): CheckOutcome {
  if (tls === null) {
    if (publicUrl === '') return skipped('hub.public_url is empty: only branches on this machine can join.');
    // An unencrypted address is always on this machine.
    if (/^nats:/i.test(publicUrl))
      return skipped('At hub.public_url only branches on this machine can join.');
    return failed(
      'The server has no certificate, so no branch on another machine can join.',
      'Hand it one with: {tillsync} hub server-config --tls-cert FILE --tls-key FILE',
    );
  }
  const { fault, validToMs, fingerprint } = lookAtCertificate(tls, publicUrl, nowMs);
  const facts = { file: tls.certFile, validTo: isoUtc(validToMs) };
  const renew = `Put a new one into ${tls.certFile} and ${tls.keyFile}; the server reads it by itself.`;
  if (fault !== null) return failed(fault, renew, facts);
  const shown = 'error' in seen ? null : seen.certificate;
  if (shown === null && !('error' in seen)) {
    const remedy = isOfUnit(file)
      ? `Start it anew: ${START_SERVER}`
      : `End it, and start it anew: nats-server -c ${file}`;
    return failed('The nats-server runs without TLS, as its configuration was before.', remedy, facts);
  }
  if (shown !== null && shown.fingerprint !== fingerprint) {
    const message = `The server still shows another certificate than that in ${tls.certFile}.`;
    return failed(message, 'Have it read its files again: sudo systemctl reload tillsync-nats', facts);
  }
  if (shown?.fault) {
    const remedy = `Branches need all that leads to an authority they know: put the whole chain into ${tls.certFile}, or name your own authority with: {tillsync} hub server-config --tls-cert ${tls.certFile} --tls-key ${tls.keyFile} --tls-ca FILE`;
    return failed(`The certificate in ${tls.certFile} is not trusted (${shown.fault}).`, remedy, facts);
  }
  const leftMs = validToMs - nowMs;
  const until = `until ${isoUtc(validToMs).slice(0, 10)}`;
  if (leftMs < RENEWED_BEFORE_MS) {
    const days = Math.floor(leftMs / DAY_MS);
    return warned(
      `The certificate in ${tls.certFile} is good for ${days} more days, ${until}.`,
      renew,
      facts,
    );
  }
  return well(`The certificate is good ${until}.`, facts);
}

/** Checks the server at the address that branches use, from the hub or from a branch. */
export function wayOutcome(
  config: { hub: Pick<Config['hub'], 'publicUrl'>; link: Pick<Config['link'], 'hub'> },
  seen: Seen,
  url = isBranch(config) ? config.link.hub : config.hub.publicUrl,
): CheckOutcome {
  if ('error' in seen) {
    const { message } = asTillsyncError(seen.error);
    if (isBranch(config)) {
      const remedy =
        'Check the connection of this machine, and with whoever runs the hub its firewall and its server.';
      return failed(message, remedy, { url });
    }
    const port = new URL(url.replace(/^\w+:/, 'http:')).port || '4222';
    return warned(
      `${message} Some routers lead no machine of theirs back to itself; then this says nothing.`,
      `Open the port in the firewall and in the router, such as: sudo ufw allow ${port}/tcp; then try it from elsewhere.`,
      { url },
    );
  }
  const { version, certificate } = seen;
  if (certificate === null && /^tls:/i.test(url)) {
    const remedy = isBranch(config)
      ? 'To see the cause, run at the hub: sudo tillsync doctor --only hub'
      : 'To write the configuration of the nats-server again, run: {tillsync} hub server-config';
    return failed(`The server at ${url} shows no certificate: it speaks without TLS.`, remedy, { url });
  }
  if (certificate?.fault) {
    const remedy = isBranch(config)
      ? 'Have the certificate of the hub renewed; where its authority changed, join again: {tillsync} init --join INVITATION'
      : 'Install a valid certificate and its key; the nats-server then reads them automatically.';
    return failed(
      `The server at ${url} shows a certificate that is not trusted (${certificate.fault}).`,
      remedy,
      { url },
    );
  }
  return well(`nats-server ${version} is reached at ${url}.`, { url, version });
}

/** Maximum number of branches that are listed by name. */
const NAMED_MAX = 5;

/** Checks a hub's branches by their last reports and by the entries that wait for them here. */
export function branchesOutcome(board: readonly BranchStatus[]): CheckOutcome {
  const facts = {
    branches: board.map(({ branch, status, level, reason, seenAt }) => ({
      branch,
      status,
      level,
      reason,
      seenAt,
    })),
  };
  const joined = board.filter(({ joinedAt }) => joinedAt !== null);
  const inTrouble = joined.filter(({ level }) => level !== 'green');
  const others = board.length - joined.length;
  const wait = others === 0 ? '' : ` Not joined yet: ${others}.`;
  if (joined.length === 0) {
    return skipped('No branch has joined yet.', 'Invite one: {tillsync} branch invite NAME', facts);
  }
  const [worst] = inTrouble;
  if (!worst) return well(`${counted(joined.length, 'branch', 'branches')} in order.${wait}`, facts);
  const named = inTrouble.slice(0, NAMED_MAX).map(({ branch, message }) => `${branch}: ${message}`);
  const more = inTrouble.length > NAMED_MAX ? ` And ${inTrouble.length - NAMED_MAX} more.` : '';
  const message = `${inTrouble.length} of ${joined.length} branches are not in order. ${named.join(' ')}${more}${wait}`;
  const where = worst.commandAt === 'branch' ? `At branch ${worst.branch}` : `For branch ${worst.branch}`;
  return warned(message, `${where}: ${worst.command}. All: {tillsync} branch list`, facts);
}
