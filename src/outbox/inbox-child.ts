import { readSync, statSync, writeFileSync } from 'node:fs';
import { StringDecoder } from 'node:string_decoder';
import { asTillsyncError, TillsyncError } from '../core/errors.ts';
import { storing } from '../db/sqlite.ts';
import { type LockHolder, lockHolders, namesOf } from '../db/wal.ts';
import { Inbox, InboxRows, type InboxTrouble } from './inbox.ts';
import { damageOf, openInboxForReading, requireSchema } from './inbox-file.ts';
import type { InboxAnswers, InboxLocation, InboxReply, InboxRequest } from './inbox-protocol.ts';

/**
 * The one program that opens the inbox. It answers requests from standard input on standard output, one by one, and
 * ends with its input. It has no event loop, network or signal handler, so whatever a POS's file does to it, it can
 * be killed at once.
 */

const COPIED_AT_ONCE = 1_000;
const READ_AT_ONCE_BYTES = 64 * 1024;
/** Bytes that SQLite locks: all those of a database, and those of a write-ahead log's index. */
const LOCKED = { first: 0x40000000, last: 0x40000000 + 512 };
const LOCKED_INDEX = { first: 120, last: 127 };

const place = JSON.parse(process.argv[2] ?? '{}') as InboxLocation;
const wallClock = { nowMs: () => Date.now() };
let troubles: InboxTrouble[] = [];
const inbox = new Inbox({ ...place, clock: wallClock, onTrouble: (trouble) => troubles.push(trouble) });

function answer(request: InboxRequest): InboxAnswers[keyof InboxAnswers] {
  switch (request.do) {
    case 'look': {
      const batch = inbox.read(request.limit, request.from);
      // Behind skipped rows there may be no more rows, although skipped rows wait.
      const isWhole = Object.keys(request.from).length === 0;
      const none = isWhole && batch.changes.length + batch.acks.length === 0;
      const waiting = none ? { rows: 0, oldest: null } : inbox.waiting();
      // While rows wait, a lock shows by itself, because they cannot be removed.
      const found = none ? holders() : [];
      const isHeld = found.length > 0 && inbox.locksMatter();
      return { batch, waiting, keptFiles: inbox.keptFiles(), holders: isHeld ? found : [] };
    }
    case 'remove':
      inbox.remove(request.rows);
      return {};
    case 'insertAcks':
      inbox.insertAcks(request.acks);
      return {};
    case 'copy':
      return reading((rows) => rows.read(COPIED_AT_ONCE, request.from));
    case 'health':
      return reading((rows, db) => ({
        bytes: statSync(place.path).size,
        version: Number(db.pragma('user_version', { simple: true })),
        ...damageOf(db, place.path),
        waiting: rows.waiting(),
      }));
  }
}

function reading<T>(look: (rows: InboxRows, db: ReturnType<typeof openInboxForReading>) => T): T {
  const db = openInboxForReading(place.path);
  try {
    return storing(() => look(new InboxRows(db, 0, () => requireSchema(db, place.path)), db));
  } finally {
    db.close();
  }
}

function reply(request: InboxRequest): InboxReply {
  troubles = [];
  try {
    const given = answer(request);
    return { troubles, answer: given };
  } catch (error) {
    const { code, message, hint } = plainly(error);
    return { troubles, error: { code, message, hint } };
  }
}

/** Turns an error into words for whoever maintains the POS. */
function plainly(error: unknown): TillsyncError {
  const known = asTillsyncError(error);
  if (known.code === 'storage-busy') {
    const held = holders();
    const who = namesOf(held);
    return new TillsyncError(
      'storage-busy',
      `The inbox ${place.path} is locked by ${who || 'a program that could not be named'}.`,
      {
        hint: `Close or restart ${held.length > 0 ? 'it' : 'the program that holds the file open'}: it keeps a transaction open.`,
      },
    );
  }
  const { cause } = known;
  const code = cause instanceof Error && 'code' in cause ? String(cause.code) : '';
  if (code === 'SQLITE_NOMEM' || code === 'SQLITE_TOOBIG') {
    return new TillsyncError(
      'storage-failed',
      `The inbox ${place.path} holds a row that is too large to be read or removed (${code}).`,
      {
        hint: 'Have whoever looks after the POS delete it.',
      },
    );
  }
  return known;
}

function holders(): LockHolder[] {
  const inodeOf = (path: string) => statSync(path, { throwIfNoEntry: false })?.ino ?? 0;
  return lockHolders([
    { inode: inodeOf(place.path), ...LOCKED },
    { inode: inodeOf(`${place.path}-shm`), ...LOCKED_INDEX },
  ]);
}

function* requests(): Generator<InboxRequest> {
  const bytes = Buffer.alloc(READ_AT_ONCE_BYTES);
  const decoder = new StringDecoder('utf8');
  let text = '';
  for (;;) {
    const length = readSync(0, bytes);
    if (length === 0) return;
    text += decoder.write(bytes.subarray(0, length));
    const lines = text.split('\n');
    text = lines.pop() ?? '';
    for (const line of lines) yield JSON.parse(line) as InboxRequest;
  }
}

// Name of the process in process lists and in the kernel's table of locks.
process.title = 'tillsync-inbox';
for (const request of requests()) writeFileSync(1, `${JSON.stringify(reply(request))}\n`);
