import { readSync, writeFileSync } from 'node:fs';
import { StringDecoder } from 'node:string_decoder';
import { InboxAnswerer, type InboxLocation, type InboxRequest } from './inbox-protocol.ts';

/**
 * Program of the process that opens the inbox. It reads requests from standard input, answers each on standard output,
 * and exits when the input ends. It has no event loop, network or signal handler, so it can be killed at once whatever
 * a POS's file does to it.
 */

const READ_AT_ONCE_BYTES = 64 * 1024;

const inbox = new InboxAnswerer(JSON.parse(process.argv[2] ?? '{}') as InboxLocation);

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

// Name of the process in process lists.
process.title = 'tillsync-inbox';
for (const request of requests()) writeFileSync(1, `${JSON.stringify(inbox.reply(request))}\n`);
