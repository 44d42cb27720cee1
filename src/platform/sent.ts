import type { z } from 'zod';
import { TillsyncError } from '../domain/errors.ts';

/** What is about to be sent, by the document's rules; `platform-refused` before anything leaves. */
export function checkedToSend<T>(schema: z.ZodType<T>, value: unknown): T {
  const read = schema.safeParse(value);
  if (read.success) return read.data;
  const faults = read.error.issues
    .slice(0, 5)
    .map((issue) => `${issue.path.length > 0 ? `${issue.path.join('.')}: ` : ''}${issue.message}`);
  throw new TillsyncError(
    'platform-refused',
    `Not sent, the platform would refuse it: ${faults.join('; ')}.`,
    {
      retryable: false,
    },
  );
}
