import { TillsyncError } from '../../src/core/errors.ts';
import type { InboxAsker, InboxProcessOptions } from '../../src/outbox/intake/inbox-process.ts';
import { InboxAnswerer, type InboxReply, type InboxRequest } from '../../src/outbox/intake/inbox-protocol.ts';

/**
 * Answers as the inbox's process does, without starting one. Does not report a lock that the test's own process holds,
 * because `lockHolders` leaves out its own process.
 */
export function inboxHere({ onTrouble, ...place }: InboxProcessOptions): InboxAsker {
  const inbox = new InboxAnswerer(place);
  const ask = async (request: InboxRequest) => {
    const reply = JSON.parse(JSON.stringify(inbox.reply(request))) as InboxReply;
    for (const trouble of reply.troubles) onTrouble?.(trouble);
    if ('answer' in reply) return reply.answer;
    const { code, message, hint } = reply.error;
    throw new TillsyncError(code, message, hint === undefined ? {} : { hint });
  };
  return { ask: ask as InboxAsker['ask'], close: async () => inbox.close() };
}
