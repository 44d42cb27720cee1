import { ReadableStream } from 'node:stream/web';
import { Decrypter, Encrypter, generateX25519Identity, identityToRecipient } from 'age-encryption';
import { TillsyncError } from '../core/errors.ts';
import type { SigningKey } from '../db/signing-keys.ts';
import { type Convert, TarFault } from './archive.ts';
import { identityOf, signingKeyOf } from './recovery-phrase.ts';

/** Backups that only the holder of a secret can read, in the age format (age-encryption.org/v1). */

/**
 * Work factor of scrypt, as log2(N). scrypt then needs 64 MiB and half a second. age's default needs four times as
 * much, which is too much for small machines.
 */
const SCRYPT_LOG_N = 16;

/**
 * Who can read a backup: an age recipient, or whoever knows a passphrase. `signingKey` is left out if this machine keeps
 * it.
 */
export type ReadableBy = { recipient: string; signingKey?: SigningKey } | { passphrase: string };

/** How an encrypted file is opened, and how it shows which machine made it. */
export interface Opening {
  decrypt: Convert;
  /** Key that must have signed the file; null with a passphrase, which whoever made the file must have known. */
  signingKey: SigningKey | null;
}

/**
 * Returns a function that encrypts a backup, and one that decrypts the result again, to check it. For this check, a
 * backup for a recipient, whose secret is not here, is also encrypted for a key that only this process has. `opening`
 * throws `usage` for a wrong secret and `TarFault` for a cut or altered file. Throws `config-invalid` if the recipient
 * is not one of age.
 */
export async function encryption(
  readableBy: ReadableBy,
  signer: SigningKey | undefined,
): Promise<{ encrypt: Convert; opening: Opening }> {
  const encrypter = new Encrypter();
  const decrypter = new Decrypter();
  if ('passphrase' in readableBy) {
    encrypter.setPassphrase(readableBy.passphrase);
    encrypter.setScryptWorkFactor(SCRYPT_LOG_N);
    decrypter.addPassphrase(readableBy.passphrase);
  } else {
    const ownKey = await generateX25519Identity();
    decrypter.addIdentity(ownKey);
    encrypter.addRecipient(await identityToRecipient(ownKey));
    try {
      encrypter.addRecipient(readableBy.recipient);
    } catch (cause) {
      throw new TillsyncError(
        'config-invalid',
        'backup.recipient is no age recipient. Nothing was written.',
        {
          hint: 'Correct it, or make another with: {tillsync} backup --new-phrase',
          cause,
        },
      );
    }
  }
  return {
    async *encrypt(source) {
      yield* bytesOf(await encrypter.encrypt(streamOf(source)));
    },
    opening: { decrypt: decryptBy(decrypter, 'what was just written'), signingKey: signer ?? null },
  };
}

/**
 * Returns how files are opened with a recovery phrase, an age identity or a passphrase. Throws `usage` if a phrase has a
 * mistake.
 */
export async function openingBy(secret: string): Promise<(file: string) => Opening> {
  const decrypter = new Decrypter();
  const identity = identityOf(secret);
  if (identity === undefined) decrypter.addPassphrase(secret);
  else decrypter.addIdentity(identity);
  const signingKey = identity === undefined ? null : await signingKeyOf(identity);
  return (file) => ({ decrypt: decryptBy(decrypter, file), signingKey });
}

/** The age package has the stream types of a browser, which no iterable makes. */
function streamOf(source: AsyncIterable<Uint8Array>): globalThis.ReadableStream<Uint8Array> {
  return ReadableStream.from(source) as unknown as globalThis.ReadableStream<Uint8Array>;
}

/** The same in the other direction: in those types nobody can iterate over a stream. */
function bytesOf(stream: globalThis.ReadableStream<Uint8Array>): AsyncIterable<Uint8Array> {
  return stream as unknown as AsyncIterable<Uint8Array>;
}

function decryptBy(decrypter: Decrypter, file: string): Convert {
  return async function* decrypt(source) {
    const plain = await decrypter.decrypt(streamOf(source)).catch((cause: unknown) => {
      if (cause instanceof Error && 'code' in cause) throw cause;
      const message = `This phrase does not open ${file}. Nothing was changed.`;
      throw new TillsyncError('usage', message, { hint: 'Was the backup made for another one?', cause });
    });
    try {
      yield* bytesOf(plain);
    } catch (cause) {
      if (cause instanceof Error && 'code' in cause) throw cause;
      throw new TarFault('it is damaged, or not whole', { cause });
    }
  };
}
