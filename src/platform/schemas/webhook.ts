import { z } from 'zod';
import { nullableFlag, nullableText } from './tolerant.ts';

/**
 * Body of PUT /webhook. The request name of the enable flag is not shown in the document, so it is given;
 * the answer's field is `active`.
 */
export function webhookPutRequest(enableFlag: string) {
  return z.strictObject({
    callbackUrl: z.url({ protocol: /^https?$/ }).optional(),
    /** An empty text clears it; the current one is kept when omitted. */
    secret: z.string().optional(),
    [enableFlag]: z.boolean().optional(),
  });
}

/** `data` of PUT /webhook and of the webhook read. */
export const webhookData = z.object({
  callbackUrl: nullableText,
  active: nullableFlag,
  hasSecret: nullableFlag,
});
