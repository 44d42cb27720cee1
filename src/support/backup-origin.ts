import {
  createPrivateKey,
  createPublicKey,
  hkdfSync,
  type KeyObject,
  sign as signBytes,
  verify as verifyBytes,
} from 'node:crypto';
import { basename } from 'node:path';
import { TillsyncError } from '../core/errors.ts';
import type { SigningKey } from '../db/signing-keys.ts';
import { type TarFile, textFile } from './archive.ts';
import { isAutomatic } from './backup-files.ts';

/**
 * Signatures that say which machine made a backup. Anyone who knows the recipient can encrypt for it, so encryption alone
 * does not. The recovery phrase gives the signing key (Ed25519): the machine keeps the secret half, and a restore makes the
 * public half from the phrase again.
 */

/** File of an archive with the signature of the file before it. */
export const SIGNATURE_FILE = 'signature';
export const SIGNATURE_BYTES_MAX = 200;

/** What is signed. A signature of one kind says nothing about another kind. */
type Kind = 'backup' | 'differential';

const DERIVED_FOR = 'tillsync backup signature';
const SEED_BYTES = 32;
/** What stands before the 32 bytes of the seed in a PKCS #8 document of an Ed25519 key (RFC 8410). */
const PKCS8_BEFORE_SEED = Buffer.from('302e020100300506032b657004220420', 'hex');

/** Derives the secret of the signing key from the bytes of a recovery phrase. */
export function signingSecret(entropy: Uint8Array): string {
  return Buffer.from(hkdfSync('sha256', entropy, '', DERIVED_FOR, SEED_BYTES)).toString('base64');
}

function privateKey({ secret }: SigningKey): KeyObject {
  const key = Buffer.concat([PKCS8_BEFORE_SEED, Buffer.from(secret, 'base64')]);
  return createPrivateKey({ key, format: 'der', type: 'pkcs8' });
}

function signedBytes(kind: Kind, text: string): Buffer {
  return Buffer.from(`tillsync ${kind}\n${text}`);
}

/** Returns the file with the signature of a text. */
export function signatureOf(kind: Kind, text: string, key: SigningKey): TarFile {
  return textFile(
    SIGNATURE_FILE,
    signBytes(null, signedBytes(kind, text), privateKey(key)).toString('base64'),
  );
}

/**
 * Throws `usage` unless the text was signed with the key, and unless an automatic backup still has the name under which
 * it was made, by which the newest one of a shop is found.
 */
export function refuseForged(
  signed: { kind: Kind; text: string; name: string | undefined; signature: string | undefined },
  key: SigningKey,
  path: string,
): void {
  const { kind, text, name, signature } = signed;
  if (signature === undefined) {
    throw forged(`${path} is not signed, so nothing says which machine made it.`);
  }
  const publicKey = createPublicKey(privateKey(key));
  if (!verifyBytes(null, signedBytes(kind, text), publicKey, Buffer.from(signature, 'base64'))) {
    throw forged(`${path} was not signed by a machine that has the key of this phrase.`);
  }
  if (isAutomatic(basename(path)) && name !== basename(path)) {
    throw forged(`${path} was made under another name: ${name}.`);
  }
}

function forged(message: string): TillsyncError {
  return new TillsyncError('usage', `${message} Nothing was changed.`, {
    hint: 'Whoever may write there can have put it there. Take another backup.',
  });
}
